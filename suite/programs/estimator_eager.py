"""Run the Estimator's trainer with eager execution enabled, which its document says cannot work.

For estimator/eager-fails. `refused` carries TensorFlow's error, or "" if training succeeded.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(sys.path[0], "reference_trainers"))  # for training_reports

import tensorflow as tf
import wrapped

from reference_trainers import estimator_multi_worker_mirrored as trainer


def main():
    events = wrapped.event_writer()
    tf.compat.v1.disable_eager_execution = lambda: None
    try:
        trainer.main()
    except Exception as error:
        events.write("refused", error="%s: %s" % (type(error).__name__, error))
        raise
    events.write("refused", error="")


if __name__ == "__main__":
    main()
