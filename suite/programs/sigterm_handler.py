"""Raise SIGTERM before and after the strategy is created, and report whether a handler ran.

For mwms/signal-handlers. The handler is installed before the strategy, as a program does that saves
a checkpoint on SIGTERM. The signal goes to the main thread, so a handler that is still installed
has run before the next event is written.
"""

import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from reference_trainers.support import roles, workload
from reference_trainers.support.events import EventWriter

NAME = "sigterm_handler"


class Handler(object):
    """Count the signals that reach the program."""

    def __init__(self, events):
        self.events, self.handled = events, 0
        signal.signal(signal.SIGTERM, self.handle)

    def handle(self, _number, _frame):
        self.handled += 1

    def report(self, when):
        before = self.handled
        signal.raise_signal(signal.SIGTERM)
        installed = signal.getsignal(signal.SIGTERM) == self.handle
        self.events.write("signaled", when=when, handled=self.handled > before, installed=installed)


def main():
    workload.OneLineParser(prog=NAME, description=__doc__).parse_args()
    role = roles.role_from_tf_config()
    events = EventWriter(role.task)
    handler = Handler(events)
    handler.report("without a strategy")
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    handler.report("with a strategy")
    # No worker leaves while another still forms the cluster.
    strategy.reduce("SUM", strategy.run(lambda: tf.constant(1.0)), axis=None)


if __name__ == "__main__":
    workload.run(main, NAME)
