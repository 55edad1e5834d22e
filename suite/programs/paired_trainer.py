"""Time a trainer, interleaved with another trainer under comparison.

It takes its own flags first, then those of the trainer. The lead task defines the end of a step by
an event, which may cover several steps: a coordinator's round, an epoch of fit. After its warm-up
the lead task makes some steps, reports their duration (`timed`), and passes the turn to the other
trainer, while its cluster waits with it. After its last turn it waits to be killed. For trials, a
slowdown can be injected.
"""

import argparse
import os
import sys
import threading
import time
from statistics import median

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import wrapped
from turns import Turns

from reference_trainers.support.events import EventWriter

WINDOW = 10  # window of the median during warm-up, in steps
FALLING = 0.97  # warm-up ends if a window takes at least this share of the one before
WARM_UP_S = 10.0  # limit, counted from the first step: on a busy machine step times never settle


class Lead(object):
    """The clock of the lead task; `ticked` is called at the end of each of its steps.

    It has `count` turns of `turn_s` each, after a first trial turn. If steps are longer, it has
    fewer turns in the same time, but at least `least`. Both sides make the same number of steps in
    a turn: as many as the faster side makes in `turn_s`. If each side ended its turn with the first
    step beyond `turn_s`, the slower side would have fewer steps per turn, a number that a small
    change can shift, and slow steps would end turns. `slow_down`: each step is lengthened by this
    share of its time.
    """

    def __init__(self, turns, count, least, turn_s, slow_down):
        self.turns, self.count, self.least, self.turn_s = turns, count, least, turn_s
        self.slow_down, self.last_s = slow_down, 0.0
        self.timed_s = 0.0  # in all turns
        self.began_s = self.began_cpu_s = 0.0  # this turn
        self.warm, self.warming = False, []  # the latter: seconds of each step so far
        self.warming_s = 0.0
        self.steps = self.steps_of_turn = 0
        self.trial_s = 0.0  # of a step without contention: both sides warm up at the same time

    def ticked(self, events, steps):
        now_s = self._injected(time.perf_counter())
        if not self.warm:
            self._warm_up(events, now_s, steps)
        else:
            self.steps += steps
            if self._over(now_s):
                # Pending events have results of steps that may still be running.
                events.flush()
                self._end_turn(events, time.perf_counter())
        self.last_s = time.perf_counter()

    def _injected(self, now_s):
        """Delay the end of a slowed-down step, and return its time."""
        if self.slow_down and self.last_s:
            until_s = now_s + self.slow_down * (now_s - self.last_s)
            while now_s < until_s:
                now_s = time.perf_counter()
        return now_s

    def _over(self, now_s):
        if self.trial_s:
            return self.steps >= self.steps_of_turn
        return now_s - self.began_s >= self.turn_s

    def _warm_up(self, events, now_s, steps):
        if self.last_s:
            self.warming.append((now_s - self.last_s) / steps)
            self.warming_s += now_s - self.last_s
        if self.warming and (self.warming_s >= WARM_UP_S or settled(self.warming)):
            events.write("warm", steps=len(self.warming) + 1)
            self.warm = True
            self._begin_turn()

    def _begin_turn(self):
        self.turns.next(self.trial_s)
        if self.trial_s:
            quicker_s = min(self.trial_s, self.turns.heard or self.trial_s)
            self.steps_of_turn = round(self.turn_s / quicker_s)
        self.steps = 0
        self.began_s, self.began_cpu_s = time.perf_counter(), time.process_time()

    def _end_turn(self, events, now_s):
        wall_s, cpu_s = now_s - self.began_s, time.process_time() - self.began_cpu_s
        if self.trial_s:
            self._report(events, wall_s, cpu_s)
        else:
            self.trial_s = wall_s / self.steps
        self._begin_turn()

    def _report(self, events, wall_s, cpu_s):
        self.timed_s += wall_s
        turns = self.turns.taken - 1
        enough = turns >= self.least and self.timed_s >= self.count * self.turn_s
        last = enough or turns == self.count
        took = {"steps": self.steps, "wall_s": wall_s, "cpu_s": cpu_s}
        events.write("timed", with_events=True, last=last, **took)
        if last:
            self.turns.leave()
            threading.Event().wait()


def settled(times_s):
    """Return True if steps no longer become faster, by the medians of the last two windows."""
    before, last = times_s[-2 * WINDOW : -WINDOW], times_s[-WINDOW:]
    return len(before) == WINDOW and median(last) >= FALLING * median(before)


def listen(lead, tick):
    """Call `lead.ticked` for each `tick` event."""

    def heard(write):
        def reported(self, event, **fields):
            write(self, event, **fields)
            if event == tick:
                lead.ticked(self, fields.get("steps", 1))

        return reported

    for name in ("write", "write_soon"):
        setattr(EventWriter, name, heard(getattr(EventWriter, name)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--program", required=True, help="the trainer")
    parser.add_argument("--turns", default="", help="of the task that leads: path of the pipes")
    parser.add_argument("--first", action="store_true", help="has the first turn")
    parser.add_argument("--count", type=int, default=1, help="turns, at most")
    parser.add_argument("--least", type=int, default=1, help="turns, however long they are")
    parser.add_argument("--turn", type=float, default=0.0, help="seconds of each, about")
    parser.add_argument("--tick", default="step", help="its event at the end of a step")
    parser.add_argument("--slow-down", type=float, default=0.0, help="of each step, as a share")
    given, theirs = wrapped.split(sys.argv[1:])
    args, rest = parser.parse_known_args(given)
    if args.turns:
        turns = Turns(args.turns, args.first)
        listen(Lead(turns, args.count, args.least, args.turn, args.slow_down), args.tick)
    wrapped.run(args.program, rest + theirs)


if __name__ == "__main__":
    main()
