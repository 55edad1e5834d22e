"""Growth of a task while it trains: memory, threads and open files, early against late."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from suite.harness.core.history import Event, Run

WARM = 0.25  # share of the steps in which buffers and pools still grow


@dataclass(frozen=True)
class Limit:
    """What a task may grow by: once, and with each step. Sockets are files."""

    field: str
    what: str
    once: float
    per_step: float


# In 20 runs of 45 steps, heaps grew by up to 4.8 MB, resident sets by up to 31 MB, and threads and
# files by up to 2. Buffers of steps under way come on top: under DTensor on TensorFlow 2.12, with a
# look after each step, the heap was up to 35 MB larger or smaller a few steps later. A leak of 200
# KB a step, or of a thread for each epoch, shows in a long run. In a short run only what is many
# times as fast does.
LIMITS = (
    Limit("heap_bytes", "bytes of heap", 48 * 2**20, 50_000),
    Limit("resident_bytes", "resident bytes", 128 * 2**20, 100_000),
    Limit("threads", "threads", 8, 0.02),
    Limit("files", "open files", 8, 0.02),
)


@dataclass(frozen=True)
class Growth:
    """How much more a task holds in the second half of its warm steps than in the first half."""

    task: str
    limit: Limit
    amount: float
    steps: float  # between the middles of both halves

    @property
    def allowed(self) -> float:
        return self.limit.once + self.limit.per_step * self.steps


def growths(run: Run) -> Iterator[Growth]:
    """Yield the growth of each driver, for each limit that its `resources` events cover."""
    for task in run.drivers:
        samples = _warm_samples(run, task)
        early, late = samples[: len(samples) // 2], samples[len(samples) // 2 :]
        if not early:
            continue
        steps = median(e["step"] for e in late) - median(e["step"] for e in early)
        for limit in LIMITS:
            sides = [[e.get(limit.field) for e in half] for half in (early, late)]
            if all(value is not None for side in sides for value in side):
                before, after = (median(side) for side in sides)
                yield Growth(task, limit, after - before, steps)


def _warm_samples(run: Run, task: str) -> list[Event]:
    """Return the warm samples of a task, all of them from one side of the end of its first epoch.

    The first evaluation and the first save start threads and fill buffers that stay: 10 threads in
    a custom loop under MirroredStrategy. They are no growth, because the next ones use them again.
    The observer sees no epochs of a custom loop: the first save counts as that end there.
    """
    samples = run.of("resources", task, 0)
    samples = [e for e in samples if e["step"] >= WARM * samples[-1]["step"]]
    ends = [e.time_s for e in run.of("epoch", task, 0) or run.of("checkpoint_saved", task, 0)]
    later = [e for e in samples if ends and e.time_s > ends[0]]
    return later if len(later) > 1 else samples[: len(samples) - len(later)]
