"""Time a trainer's steps with the hooks of the observer and without them, in one process.

It takes its own flags first, then those of the trainer. A stretch is a number of consecutive steps.
For each stretch after the first, `timed` reports its duration. The order is ABBA: two stretches
with the hooks, two without them, so that a uniform drift affects both alike.
"""
# ruff: noqa: ARG002 (the hooks have Keras' signatures)

import argparse
import itertools
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(sys.path[1], "reference_trainers"))  # for training_reports

import numpy as np
import tensorflow as tf
import training_reports
import wrapped


class Stretches(object):
    """The clock: `pause` ends a stretch, `go_on` begins one. The first is warm-up."""

    def __init__(self, observer):
        self.observer = observer
        self.number = 0
        self.begin_s = self.begin_cpu_s = 0.0

    def is_observed(self):
        return self.number % 4 in (0, 1)

    def pause(self, steps):
        observed = self.is_observed()
        if observed:
            self.observer.events.flush()  # a thread would write the last events later
        wall_s, cpu_s = time.perf_counter() - self.begin_s, time.process_time() - self.begin_cpu_s
        if not observed:
            self.observer.step += steps
            self.observer.global_step += steps
        if self.number:
            took = {"wall_s": wall_s, "cpu_s": cpu_s}
            self.observer.write("timed", with_events=observed, steps=steps, **took)
        self.number += 1
        self.observer.installation.switch(self.is_observed())

    def go_on(self):
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

    fit = tf.keras.Model.fit

    def timed_fit(model, *args, callbacks=(), **kwargs):
        return fit(model, *args, callbacks=[Clock(), *callbacks], **kwargs)

    tf.keras.Model.fit = timed_fit  # type: ignore[method-assign]


def time_reports(stretches, steps):
    """Time stretches of `steps` steps of a program that reports each of them."""
    counted = itertools.count(1)

    def attach():
        report = training_reports.step  # the observer's, or the module's own

        def timed_step(*args, **kwargs):
            report(*args, **kwargs)
            if next(counted) % steps == 0:
                for loss in tf.nest.flatten(args[:1]):
                    np.array(loss)  # waits until the step has ended
                stretches.pause(steps)
                attach()
                stretches.go_on()

        training_reports.step = timed_step

    attach()


def time_coordinator(stretches, steps):
    """Time stretches of at least `steps` steps that a coordinator has scheduled and awaited."""
    module = tf.distribute.coordinator

    class Timed(module.ClusterCoordinator):
        scheduled = 0

        def schedule(self, *args, **kwargs):
            self.scheduled += 1
            return super().schedule(*args, **kwargs)

        def join(self):
            super().join()
            if self.scheduled >= steps:
                stretches.pause(self.scheduled)
                self.scheduled = 0
                stretches.go_on()

    module.ClusterCoordinator = Timed


def main():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--program", required=True, help="the trainer")
    parser.add_argument("--stretch", type=int, required=True, help="steps outside of Model.fit")
    parser.add_argument("--divide", type=int, default=1, help="the processor into so many devices")
    args, rest = parser.parse_known_args()
    if args.divide > 1:
        sys.modules["training_observer.changes"].divide_processor(tf, args.divide)
    if "--job_name=ps" not in rest:
        stretches = Stretches(wrapped.observer())
        time_keras(stretches)
        time_reports(stretches, args.stretch)
        time_coordinator(stretches, args.stretch)
    wrapped.run(args.program, rest)


if __name__ == "__main__":
    main()
