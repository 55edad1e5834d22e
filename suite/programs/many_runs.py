"""Run a step many times in one session on a local server.

For ps1/long-session. Several threads run it, since only the number of runs counts. `refused`
reports the error of the first run that fails.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from reference_trainers.support import workload
from reference_trainers.support.events import EventWriter

NAME = "many_runs"
THREADS = 4
tf1 = tf.compat.v1


def main():
    parser = workload.OneLineParser(prog=NAME, description=__doc__)
    parser.add_argument("--runs", type=workload.number(int, 1), required=True)
    runs = parser.parse_args().runs
    events = EventWriter()
    tf1.disable_eager_execution()
    server = tf1.train.Server.create_local_server()
    step = tf1.assign_add(tf1.train.create_global_step(), 1).op
    errors = []
    with tf1.Session(server.target) as session:
        session.run(tf1.global_variables_initializer())

        def run(_):
            for _ in range(runs // THREADS):
                if errors:
                    return
                try:
                    session.run(step)
                except tf.errors.OpError as error:
                    errors.append("%s: %.300s" % (type(error).__name__, error))

        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(run, range(THREADS)))
        made = 0 if errors else int(session.run(tf1.train.get_global_step()))
    events.write("refused", error=errors[0] if errors else "")
    events.write("finished", global_step=made, steps=made)


if __name__ == "__main__":
    workload.run(main, NAME)
