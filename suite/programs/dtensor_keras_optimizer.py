"""Run the DTensor trainer with an optimizer of Keras instead of the document's own.

For dtensor/keras-optimizer, the Keras optimizer for DTensor that the document refers to. Keras 3
has none, so with Keras 3 the program uses tf_keras if it is installed.
"""

import importlib
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf
from tensorflow.experimental import dtensor

from reference_trainers import dtensor_data_parallel as trainer
from reference_trainers import dtensor_support, multi_worker, workload
from reference_trainers.dtensor_support import Layout

NAME = "dtensor_keras_optimizer"


class OfKeras(tf.Module):
    """An optimizer of Keras with the interface of the trainer's own."""

    def __init__(self, args, model, optimizers):
        super().__init__()
        mesh = model.weights[0].layout.mesh
        make = {"sgd": optimizers.SGD, "momentum": optimizers.SGD, "adam": optimizers.Adam}
        extra = {"momentum": 0.9} if args.optimizer == "momentum" else {}
        self.optimizer = make[args.optimizer](args.learning_rate, mesh=mesh, **extra)
        self.model_variables = model.weights
        self.optimizer.build(model.weights)

    @property
    def iterations(self):
        return self.optimizer.iterations

    @property
    def slots(self):
        others = (id(self.iterations), id(getattr(self.optimizer, "_learning_rate", None)))
        return [v for v in self.optimizer.variables if id(v) not in others]

    def apply_gradients(self, gradients):
        self.optimizer.apply_gradients(zip(gradients, self.model_variables))  # noqa: B905


def main():
    args, role, events, data = dtensor_support.begin(NAME, __doc__)
    keras = tf.keras
    try:
        if not hasattr(keras, "dtensor"):
            keras = importlib.import_module("tf_keras")
    except ImportError:
        events.write("unsupported", reason="Keras 3 has no optimizers for DTensor")
        sys.exit(77)
    mesh = dtensor.create_distributed_mesh([(trainer.BATCH, args.devices)])
    multi_worker.report_joined(events, role, "none", replicas=mesh.size)
    layouts = [Layout.replicated(mesh, rank=2)] * trainer.LAYERS

    def build(args, model):
        return OfKeras(args, model, keras.dtensor.experimental.optimizers)

    trainer.train(args, events, data, layouts, build)


if __name__ == "__main__":
    workload.run(main, NAME)
