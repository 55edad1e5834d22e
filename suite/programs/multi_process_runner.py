"""Run TensorFlow's own multi_process_runner, kept warm: a new cluster for each SIGUSR1.

For the startup benchmark, which compares it with the suite's zygote. It is meant for binaries that
Bazel built and starts processes by running its own binary again. A launcher script replaces that
binary here. In addition to TensorFlow it needs dill and portpicker.
"""

import os
import shlex
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from reference_trainers.support.events import EventWriter

NAME = "multi_process_runner"
LAUNCHER = "MULTI_PROCESS_RUNNER_LAUNCHER"  # environment variable; inherited by the re-run
runner = tf.__internal__.distribute.multi_process_runner


def task(program, number):
    """Run one task of cluster `number`, in a process of the runner, and return its value.

    Its events go to the driver's file, where concurrent writers append whole lines.
    """
    import os  # the runner serializes this function without its module
    import runpy
    import sys

    os.environ["TRAINER_ATTEMPT"] = str(number)
    sys.argv = [program]
    return runpy.run_path(program)["main"]()


class Serve(tf.test.TestCase):
    """The runner works only within a test."""

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
    """Write an executable to this directory that runs this program, and return its path."""
    path = os.path.abspath(NAME)
    command = shlex.join([sys.executable, os.path.abspath(__file__)])
    with open(path, "w") as file:
        file.write('#!/bin/sh\nexec %s "$@"\n' % command)
    os.chmod(path, 0o700)
    return path


if __name__ == "__main__":
    # Blocked from the start, so that an early request stays pending until sigwait.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    if LAUNCHER not in os.environ:
        os.environ[LAUNCHER] = launcher()
    sys.argv[0] = os.environ[LAUNCHER]
    runner.test_main()
