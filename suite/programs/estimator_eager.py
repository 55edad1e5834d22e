"""Run the Estimator's trainer with eager execution enabled, which its document says cannot work.

For estimator/eager-fails. `refused` carries TensorFlow's error, or "" if training succeeded.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from reference_trainers import BY_NAME, estimator_multi_worker_mirrored, roles, workload
from reference_trainers.events import EventWriter

NAME = "estimator_eager"


def main():
    flags = BY_NAME[estimator_multi_worker_mirrored.NAME].flags
    args = workload.parser(NAME, __doc__, flags).parse_args()
    role = roles.role_from_tf_config()
    events = EventWriter(role.task)
    data = workload.load_data(args.data)
    try:
        estimator_multi_worker_mirrored.run(args, role, events, data)
    except Exception as error:
        events.write("refused", error="%s: %s" % (type(error).__name__, error))
        raise
    events.write("refused", error="")


if __name__ == "__main__":
    workload.run(main, NAME)
