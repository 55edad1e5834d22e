"""Run dist_mnist.py, a program for TensorFlow 1, unchanged on TensorFlow 2.

`import tensorflow` gives compat.v1. The reader of MNIST that was in TensorFlow 1 reads Keras' copy.
"""

import runpy
import sys
import types
from pathlib import Path

import numpy as np
import tensorflow


class Examples:
    """Rows of MNIST, in random batches."""

    def __init__(self, images, labels):
        self.images = images.reshape(-1, 784) / np.float32(255)
        self.labels = np.eye(10, dtype="float32")[labels]

    def next_batch(self, size):
        rows = np.random.randint(len(self.images), size=size)
        return self.images[rows], self.labels[rows]


def read_data_sets(_directory, one_hot):
    assert one_hot
    (images, labels), _ = tensorflow.keras.datasets.mnist.load_data()
    parts = slice(5000, None), slice(5000)
    train, validation = (Examples(images[part], labels[part]) for part in parts)
    return types.SimpleNamespace(train=train, validation=validation)


v1 = tensorflow.compat.v1
v1.disable_v2_behavior()
reader = types.ModuleType("input_data")
vars(reader)["read_data_sets"] = read_data_sets
modules = {"tensorflow": v1}
name = "tensorflow.examples"
for part in ("tutorials", "mnist", "input_data"):
    modules[name] = types.ModuleType(name)
    name += "." + part
modules[name] = vars(modules["tensorflow.examples.tutorials.mnist"])["input_data"] = reader
sys.modules.update(modules)
runpy.run_path(str(Path(__file__).with_name("dist_mnist.py")), run_name="__main__")
