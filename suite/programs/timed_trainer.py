"""Time a trainer's steps from outside, in the same way with and without events.

It takes its own flags first, then those of the trainer. A stretch is a number of consecutive steps.
For each stretch after the first, `timed` reports its duration. Two such programs alternate, one
stretch each.
"""
# ruff: noqa: ARG002 (the hooks have Keras' signatures)

import argparse
import itertools
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import tensorflow as tf
import wrapped
from turns import Turns


class Stretches(object):
    """The clock: `pause` ends a stretch, `go_on` begins one. The first is warm-up."""

    def __init__(self, events, with_events, turns):
        self.events, self.with_events, self.turns = events, with_events, turns
        self.begin_s = self.begin_cpu_s = 0.0
        self.warm = False

    def pause(self, steps):
        wall_s, cpu_s = time.perf_counter() - self.begin_s, time.process_time() - self.begin_cpu_s
        if self.warm:
            took = {"wall_s": wall_s, "cpu_s": cpu_s}
            self.events.write("timed", with_events=self.with_events, steps=steps, **took)
        self.warm = True

    def go_on(self):
        if self.warm:
            self.turns.next()
        self.begin_s, self.begin_cpu_s = time.perf_counter(), time.process_time()


def time_keras(stretches):
    """Time epochs as stretches: hooks at the ends of an epoch add nothing to a step.

    The callback comes first, so the trainer's own writes at the end of an epoch are not timed.
    """

    class Clock(tf.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            stretches.go_on()

        def on_epoch_end(self, epoch, logs=None):
            stretches.pause(self.params["steps"])

        def on_train_end(self, logs=None):
            stretches.turns.give()
            stretches.turns.wait()  # not to disturb the other's last stretch

    fit = tf.keras.Model.fit

    def timed_fit(model, *args, callbacks=(), **kwargs):
        return fit(model, *args, callbacks=[Clock(), *callbacks], **kwargs)

    tf.keras.Model.fit = timed_fit  # type: ignore[method-assign]


def time_sessions(stretches, steps):
    """Time stretches of `steps` runs of a session that feed it a batch."""
    run = tf.compat.v1.Session.run
    fed = itertools.count()

    def timed_run(session, fetches, feed_dict=None, **how):
        number = next(fed) if feed_dict else None
        if number is not None and number % steps == 0:
            if number:
                stretches.pause(steps)
            stretches.go_on()
        return run(session, fetches, feed_dict, **how)

    tf.compat.v1.Session.run = timed_run


def main():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--program", required=True, help="the trainer")
    parser.add_argument("--stretch", type=int, required=True, help="steps with a session")
    parser.add_argument("--turns", required=True, help="path of the pipes")
    parser.add_argument("--first", action="store_true", help="has the first turn")
    parser.add_argument("--silent", action="store_true", help="without events")
    args, rest = parser.parse_known_args()
    if "--job_name=ps" not in rest:
        events = wrapped.event_writer()
        stretches = Stretches(events, not args.silent, Turns(args.turns, args.first))
        time_keras(stretches)
        time_sessions(stretches, args.stretch)
    if args.silent:
        del os.environ["TRAINER_EVENTS"]  # after `events` has read it
    wrapped.run(args.program, rest)


if __name__ == "__main__":
    main()
