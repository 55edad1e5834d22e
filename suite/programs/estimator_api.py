"""Look for tf.estimator, and report the result.

For estimator/removed. `refused` carries the error with which TensorFlow reports that tf.estimator
is absent, or "" if it is present. The program does not encode the version that removed it.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from reference_trainers.support import keras_support
from reference_trainers.support.events import EventWriter

NAME = "estimator_api"


def main():
    events = EventWriter()
    events.write("started", pid=os.getpid(), trainer=NAME, seed=0, **keras_support.versions())
    error = ""
    try:
        tf.estimator.Estimator  # noqa: B018
    except AttributeError as missing:
        error = "%s: %s" % (type(missing).__name__, missing)
    events.write("refused", error=error)


if __name__ == "__main__":
    main()
