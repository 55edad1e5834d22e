"""What a collective between two GPUs is held against: a plain copy from the one to the other.

One process that has both and TensorFlow's own copy, which takes the way that the driver gives it:
NVLink, PCIe, or through the host's memory. Every copy is compared with what was copied. Where there
are no two GPUs it copies between logical CPUs: a trial of the program, and no limit of anything.
"""

import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import numpy as np
import tensorflow as tf

from reference_trainers import keras_support, workload
from reference_trainers.events import EventWriter

NAME = "device_copy"
COPIED = 64 << 20  # bytes
COPIES = 20
SETTLING = 3  # copies before those that are told: the first opens the way and allocates


def copied(source, target):
    """(bytes, begins, ends) of copies; ValueError when one is not what was copied."""
    settle = tf.test.experimental.sync_devices  # a GPU may still be at it when a call returns
    values, begins, ends = np.arange(COPIED // 4, dtype=np.float32), [], []
    for iteration in range(SETTLING + COPIES):
        values[:] += 1  # else a copy could be the one before
        with tf.device(source):
            given = tf.constant(values) + 0.0
        settle()
        begin_s = time.monotonic()
        with tf.device(target):
            got = tf.identity(given)
        settle()
        end_s = time.monotonic()
        if not np.array_equal(got.numpy(), values):
            raise ValueError("copy %d from %s to %s is wrong" % (iteration, source, target))
        if iteration >= SETTLING:
            begins.append(begin_s)
            ends.append(end_s)
    return [COPIED] * COPIES, begins, ends


def main():
    workload.OneLineParser(prog=NAME, description=__doc__).parse_args()
    events = EventWriter()
    source, target = keras_support.logical_devices(2)
    told, begins, ends = copied(source, target)
    what = "gpu_copy" if source.startswith("GPU") else "cpu_copy"
    events.write("limit", what=what, bytes=told, begins_s=begins, ends_s=ends)


if __name__ == "__main__":
    workload.run(main, NAME)
