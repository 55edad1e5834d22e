"""TensorFlow's own multi_process_runner, kept warm: another cluster for each SIGUSR1.

For the start-up benchmark, which compares it with the suite's zygote. It is meant for binaries
that Bazel built: it starts processes by running its own binary again, so a launcher stands in for
that. Beside TensorFlow it needs dill and portpicker.
"""

import os
import shlex
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from reference_trainers.events import EventWriter

NAME = "multi_process_runner"
LAUNCHER = "MULTI_PROCESS_RUNNER_LAUNCHER"  # variable; inherited when it runs itself again
runner = tf.__internal__.distribute.multi_process_runner


def task(program, number):
    """One task of cluster `number`, in a process of the runner's; returns the value.

    Its events go where the driver's go: a line is whole, whoever writes it.
    """
    import os  # the runner carries this function over without its module
    import runpy
    import sys

    os.environ["TRAINER_ATTEMPT"] = str(number)
    sys.argv = [program]
    return runpy.run_path(program)["main"]()


class Serve(tf.test.TestCase):
    """The runner works from within a test only."""

    def test_serve(self):
        events = EventWriter()
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "all_reduce.py")
        number, values = 0, []
        while True:
            events.write("served", clusters=number, values=values)
            signal.sigwait([signal.SIGUSR1])
            number += 1
            cluster = runner.create_cluster_spec(num_workers=2)
            values = runner.run(task, cluster, args=(program, number)).return_value


def launcher():
    """An executable, in this directory, that runs this very program."""
    path = os.path.abspath(NAME)
    command = shlex.join([sys.executable, os.path.abspath(__file__)])
    with open(path, "w") as file:
        file.write('#!/bin/sh\nexec %s "$@"\n' % command)
    os.chmod(path, 0o700)
    return path


if __name__ == "__main__":
    # Blocked from the start: a request that comes early waits for sigwait.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    if LAUNCHER not in os.environ:
        os.environ[LAUNCHER] = launcher()
    sys.argv[0] = os.environ[LAUNCHER]
    runner.test_main()
