"""Time a plain copy from one GPU to another, as the limit for a collective between them.

One process has both GPUs and uses TensorFlow's own copy, over the path that the driver selects:
NVLink, PCIe, or the host's memory. Every copy is compared with its source. Without two GPUs it
copies between logical CPUs, which tests the program but is not a limit.
"""

import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import numpy as np
import tensorflow as tf

from reference_trainers.support import keras_support, workload
from reference_trainers.support.events import EventWriter

NAME = "device_copy"
COPIED = 64 << 20  # bytes
COPIES = 20
SETTLING = 3  # warm-up copies: the first opens the path and allocates


def copied(source, target):
    """Return (bytes, begins, ends) of copies; raise ValueError if one differs from its source."""
    settle = tf.test.experimental.sync_devices  # a GPU may still be busy when a call returns
    values, begins, ends = np.arange(COPIED // 4, dtype=np.float32), [], []
    for iteration in range(SETTLING + COPIES):
        values[:] += 1  # otherwise a stale copy would compare equal
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
    sizes, begins, ends = copied(source, target)
    what = "gpu_copy" if source.startswith("GPU") else "cpu_copy"
    events.write("limit", what=what, bytes=sizes, begins_s=begins, ends_s=ends)


if __name__ == "__main__":
    workload.run(main, NAME)
