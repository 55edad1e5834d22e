"""A toy model for fake trainers that really learns: logistic regression on made-up examples.

It runs in milliseconds, and checks pass on it for the right reason: gradients are means over a
batch, momentum has slots and data have an order. Standard library only, in Python 3.8 syntax.
"""

import functools
import hashlib
import io
import math
import operator
import os
import random
import struct
import sys
import zipfile

WEIGHTS = 4  # number of scalar variables
TRUTH = (1.5, -2.0, 1.0, 0.5)


def dot(a, b):
    return sum(map(operator.mul, a, b))


@functools.lru_cache(maxsize=100000)
def example(index):
    """Return the features and label (0.0 or 1.0) of an example; the last feature is constant."""
    draw = random.Random(index)
    x = [draw.uniform(-1, 1) for _ in range(WEIGHTS - 1)] + [1.0]
    return x, float(dot(x, TRUTH) > 0)


def count_examples(path, name="x_train"):
    """Return the number of rows of an array in an .npz, read from its header alone."""
    with zipfile.ZipFile(path) as archive, archive.open(name + ".npy") as file:
        header = file.read(10)
        (length,) = struct.unpack("<H", header[8:10])
        text = file.read(length).decode("latin1")
    return int(text.split("'shape': (")[1].split(",")[0])


def write_npz(path, arrays):
    """Write lists of float as arr_0, arr_1, ... as numpy.savez does."""
    with zipfile.ZipFile(path, "w") as archive:
        for i, values in enumerate(arrays):
            text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({len(values)},), }}"
            text += " " * (-(10 + len(text) + 1) % 64) + "\n"
            data = io.BytesIO()
            data.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode())
            data.write(struct.pack(f"<{len(values)}d", *values))
            archive.writestr(f"arr_{i}.npy", data.getvalue())


def digest(values):
    """Return the sha256 of a list of numbers, or "" for an empty list."""
    return hashlib.sha256(repr(values).encode()).hexdigest() if values else ""


def batch_sums(weights, indices, inverted=False):
    """Return sums over the examples: gradients, then loss, number right and number of examples.

    With `inverted`, the accuracy is computed against the wrong labels. The loss is unchanged.
    """
    sums = [0.0] * WEIGHTS
    loss = right = 0.0
    for index in indices:
        x, y = example(index)
        z = max(-30.0, min(30.0, dot(weights, x)))
        p = 1 / (1 + math.exp(-z))
        loss -= math.log(p if y else 1 - p)
        right += (z > 0) == (bool(y) != inverted)
        for i in range(WEIGHTS):
            sums[i] += (p - y) * x[i]
    return sums + [loss, right, float(len(indices))]


class Model:
    """Weights, optimizer slots and the count of updates."""

    def __init__(self, seed, optimizer, learning_rate):
        draw = random.Random(seed)
        self.weights = [draw.uniform(-0.1, 0.1) for _ in range(WEIGHTS)]
        self.slots = [0.0] * WEIGHTS if optimizer == "momentum" else []
        self.learning_rate = learning_rate
        self.iterations = 0

    def update(self, gradient):
        if self.slots:
            self.slots = [0.9 * s + gradient[i] for i, s in enumerate(self.slots)]
            gradient = self.slots
        self.weights = [w - self.learning_rate * gradient[i] for i, w in enumerate(self.weights)]
        self.iterations += 1

    def state(self):
        return {"weights": self.weights, "slots": self.slots, "iterations": self.iterations}

    def load(self, state):
        self.weights, self.slots = list(state["weights"]), list(state["slots"])
        self.iterations = state["iterations"]


class Batches:
    """This worker's examples for each step: shuffle, repeat, batch, shard; or by epoch."""

    def __init__(self, options, batch, examples, rank, workers):
        self.seed, self.batch, self.order = options.seed, batch, options.order
        self.steps = options.steps_per_epoch
        self.examples, self.rank, self.workers = examples, rank, workers
        self.shard = options.autoshard != "off"

    def take(self, epoch, step, since_start):
        """Return the example indices of a step (from 0) of an epoch (from 0).

        `since_start` counts the steps of this incarnation. The document's order uses only that.
        """
        by_epoch = self.order == "by-epoch"
        place = step if by_epoch else since_start
        if self.shard:
            first = (place * self.workers + self.rank) * self.batch
        else:
            first = place * self.batch
        return [self._element(epoch if by_epoch else None, first + i) for i in range(self.batch)]

    def _element(self, epoch, position):
        again, place = divmod(position, self.examples)
        return _permutation(self.seed, epoch, again, self.examples)[place]


@functools.lru_cache(maxsize=64)
def _permutation(seed, epoch, again, examples):
    order = list(range(examples))
    random.Random(repr((seed, epoch, again))).shuffle(order)
    return order


def defect(name):
    """Return True if this process is to have the defect."""
    return os.environ.get("FAKE_DEFECT") == name


def report_started(events, options):
    """Write the `started` event of a fake."""
    events.write(
        "started",
        tensorflow="none",
        keras="none",
        python=sys.version.split()[0],
        pid=os.getpid(),
        trainer="fake",
        seed=options.seed,
    )
