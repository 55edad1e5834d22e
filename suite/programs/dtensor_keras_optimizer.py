"""Run the DTensor trainer with an optimizer of Keras instead of the document's own.

For dtensor/keras-optimizer, the Keras optimizer for DTensor that the document refers to. Keras 3
has none, so with Keras 3 the program uses tf_keras if it is installed.
"""

import importlib
import sys
from typing import Any

import meshes
import tensorflow as tf
import wrapped

from reference_trainers.support import workload


class Optimizer(tf.Module):
    """An optimizer of Keras with the interface of the trainer's own."""

    keras: Any = tf.keras

    def __init__(self, kind, weights, rate):
        super().__init__()
        optimizers = self.keras.dtensor.experimental.optimizers
        make = optimizers.Adam if kind == "adam" else optimizers.SGD
        extra = {"momentum": 0.9} if kind == "momentum" else {}
        self.optimizer = make(rate, mesh=weights[0].layout.mesh, **extra)
        self.weights = weights
        self.optimizer.build(weights)
        self.iterations = self.optimizer.iterations

    def apply_gradients(self, gradients):
        self.optimizer.apply_gradients(zip(gradients, self.weights))  # noqa: B905


def main():
    try:
        if not hasattr(tf.keras, "dtensor"):
            Optimizer.keras = importlib.import_module("tf_keras")
    except ImportError:
        reason = "Keras 3 has no optimizers for DTensor"
        wrapped.event_writer().write("unsupported", reason=reason)
        sys.exit(workload.UNSUPPORTED)
    wrapped.run_changed(meshes.trainer.__file__, {"Optimizer": Optimizer})


if __name__ == "__main__":
    main()
