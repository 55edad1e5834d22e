"""Observe whether a session on a server can run a small step many times.

Four threads run the step, since only the number of runs counts. With --workaround one thread runs
it in a MonitoredTrainingSession, which makes a new session after such an error.

Exit code: 1 if a run fails, 0 if the session continues, 125 otherwise.
"""

import concurrent.futures
import os
import sys
import threading

RUNS, THREADS = 500000, 4
LIMIT_S = 900


def main():
    threading.Timer(LIMIT_S, os._exit, [125]).start()  # also if TensorFlow hangs
    import tensorflow as tf

    tf1 = tf.compat.v1
    tf1.disable_eager_execution()
    server = tf1.train.Server.create_local_server()
    step = tf1.assign_add(tf1.train.create_global_step(), 1).op
    print("expected: %d runs without an error (TensorFlow %s)" % (RUNS, tf.__version__))
    if "--workaround" in sys.argv:
        print("observed: %d runs, in %d sessions" % (RUNS, sessions_of(tf1, server, step)))
        return 0
    session = tf1.Session(server.target)
    session.run(tf1.global_variables_initializer())
    errors, counts = [], [0] * THREADS

    def run(thread):
        for _ in range(RUNS // THREADS):
            if errors:
                return
            try:
                session.run(step)
            except tf.errors.AbortedError as error:
                errors.append(next(one for one in str(error).splitlines() if "twice" in one))
            counts[thread] += 1

    with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(run, range(THREADS)))
    if errors:
        print("observed: run %d: %s" % (sum(counts), errors[0].split("twice")[0] + "twice"))
        return 1
    print("observed: %d runs" % sum(counts))
    return 0


def sessions_of(tf1, server, step):
    """Run the step as often in a MonitoredTrainingSession; return how many sessions it made."""
    made = []

    class Count(tf1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            made.append(session)

    with tf1.train.MonitoredTrainingSession(server.target, hooks=[Count()]) as session:
        for _ in range(RUNS):
            session.run(step)
    return len(made)


if __name__ == "__main__":
    code = 125  # git bisect skips such a version
    try:
        code = main()
    except BaseException as error:
        print("cannot tell: %s: %s" % (type(error).__name__, error))
    sys.stdout.flush()
    os._exit(code)  # TensorFlow's threads are not waited for
