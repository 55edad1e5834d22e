"""Form a MultiWorkerMirroredStrategy cluster, all-reduce one value, and exit.

For the startup benchmark and the claims about cluster formation, so it imports and runs nothing
else. Worker i (counted from 1) contributes i, so that n workers must get n * (n + 1) / 2.
"""

import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from reference_trainers.support import roles, workload
from reference_trainers.support.events import EventWriter

NAME = "all_reduce"


def main():
    parser = workload.OneLineParser(prog=NAME, description=__doc__)
    parser.add_argument("--backend", **workload.OPTIONAL_FLAGS["backend"])
    parser.add_argument("--hold", action="store_true", help="then stay until ended from outside")
    args = parser.parse_args()
    role = roles.role_from_tf_config()
    events = EventWriter(role.task)
    implementation = tf.distribute.experimental.CommunicationImplementation[args.backend.upper()]
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=implementation
        )
    )
    events.write(
        "joined",
        cluster=role.cluster,
        workers=len(role.workers),
        chief=role.chief,
        backend=args.backend,
        replicas=strategy.num_replicas_in_sync,
    )
    own = float(1 + role.workers.index(role.task))

    @tf.function
    def total():
        return strategy.reduce("SUM", strategy.run(lambda: tf.constant(own)), axis=None)

    value = float(total().numpy())
    events.write("reduced", value=value)
    while args.hold:
        signal.pause()
    return value


if __name__ == "__main__":
    workload.run(main, NAME)
