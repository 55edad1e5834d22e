"""Training runs for benchmarks: a number of steps in a fresh cluster, and their resource usage."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reference_trainers import Trainer
from suite.harness.checks.assertions import same
from suite.harness.cluster.cluster import Cluster
from suite.harness.core import backends
from suite.harness.core.case import Case
from suite.harness.core.deadlines import wait_until
from suite.harness.core.errors import NotExamined, Unsupported
from suite.harness.core.history import Run
from suite.harness.metrics.throughput import Steps, timed_steps
from suite.harness.scenarios import base
from suite.harness.scenarios.base import Launch
from suite.harness.session.session import Session

LOOK_S = 0.2


@dataclass(frozen=True)
class Trained:
    """A history, and the resource usage of the tasks that were still running at its end.

    cpu_s: of all these tasks, tracing included, in seconds; 0 if all had exited. peak_memories_mib:
    the largest resident set of each, by its name.
    """

    run: Run
    cpu_s: float
    peak_memories_mib: Mapping[str, float]

    @property
    def peak_memory_mib(self) -> float:
        """Return the largest peak memory of a task; 0 if all had exited."""
        return max(self.peak_memories_mib.values(), default=0.0)

    def measurements(self) -> Iterator[tuple[str, float, str, str]]:
        """Yield (metric, value, unit, better) of the resource usage, as far as it is known."""
        if self.cpu_s:
            yield "training_cpu_s", self.cpu_s, "s", "lower"
        if self.peak_memories_mib:
            yield "training_peak_memory_mib", self.peak_memory_mib, "MiB", "lower"


def common_collective(made: Sequence[Trained]) -> str:
    """Return the implementation that all processes or clusters of one figure chose.

    The choice is TensorFlow's. Raise CheckFailed, with both names, if they differ.
    """
    sides = {f"number {i} ({one.run.directory.name})": one for i, one in enumerate(made, start=1)}
    chosen = {name: one.run.collective for name, one in sides.items()}
    return same("collective implementation of one figure's processes", chosen)


def unmet(case: Case, collective: str, session: Session) -> str:
    """Return the reason why this implementation is not the requested one, or "" if it is."""
    return backends.unmet(case.backend, collective, session.has_gpus(case))


def require_requested_backend(case: Case, collective: str, session: Session) -> None:
    """Raise Unsupported if another implementation did the work under the requested name."""
    reason = unmet(case, collective, session)
    if reason:
        raise Unsupported(reason)


def timed(run: Run) -> Steps:
    """Return the timed steps. Raise NotExamined if a user's program made too few of them."""
    try:
        return timed_steps(run)
    except ValueError as error:
        if run.trainer.of_user:
            raise NotExamined(f"its steps cannot be timed: {error}") from error
        raise


def record_memory(record: Callable[..., None], one: Trained, **columns: Any) -> None:
    """Record a row for each task, whose name ends the variant; `columns` as for `record`.

    The rows have no better direction: only the largest is judged, because every additional judged
    figure reduces the power of the others.
    """
    for task, mib in one.peak_memories_mib.items():
        variant = ", ".join(filter(None, (columns.get("variant", ""), task)))
        record("task_peak_memory_mib", mib, "MiB", **{**columns, "variant": variant})


def trained(launch: Launch, steps: int, **how: Any) -> Trained:
    """Train in a fresh cluster; see `side_by_side`."""
    (one,) = side_by_side(launch, steps, 1, **how)
    return one


def side_by_side(
    launch: Launch,
    steps: int,
    clusters: int,
    *,
    trainer: Trainer | None = None,
    workers: int | None = None,
    **flags: Any,
) -> list[Trained]:
    """Train in `clusters` fresh clusters at once, and end each after its last step.

    Later work is not timed. Several clusters continue until all have made `steps` steps while all
    of them trained, because otherwise the last to start would run while some of the others are
    finishing. A trainer that reports epochs only makes whole epochs.
    """
    row = trainer or launch.case.trainer
    flags.setdefault("model", row.model or None)
    most = steps if clusters == 1 else base.NEVER
    in_epochs = row.progress == "epoch" or (row.of_user and base.coordinated(row))
    epochs, most = (most, base.EPOCH_STEPS) if in_epochs else (1, most)
    work = base.work(launch, row, epochs=epochs, steps_per_epoch=most, **flags)
    with contextlib.ExitStack() as entered:
        started = [
            entered.enter_context(launch(trainer, workers=workers, flags=work))
            for _ in range(clusters)
        ]
        for cluster in started:
            cluster.start()
        over = _over if clusters == 1 else _over_together
        with contextlib.suppress(TimeoutError):  # polls seldom: polling takes CPU from the training
            wait_until(
                "the last steps",
                lambda: over(started, steps),
                launch.engine.deadlines.run_s,
                LOOK_S,
            )
        return [_ended(cluster, steps) for cluster in started]


def _over(clusters: Sequence[Cluster], steps: int) -> bool:
    (cluster,) = clusters
    alive = set(cluster.drivers) <= set(cluster.alive())
    sign = cluster.plan.trainer.progress
    done = {e.task for e in cluster.history if e.name == sign and e["global_step"] >= steps}
    return not alive or done == set(cluster.drivers)


def _over_together(clusters: Sequence[Cluster], steps: int) -> bool:
    """Return True if each worker has made `steps` steps while all of them trained."""
    if any(set(cluster.drivers) - set(cluster.alive()) for cluster in clusters):
        return True
    made = [
        [e.time_s for e in cluster.history if e.name == "step" and e.task == driver]
        for cluster in clusters
        for driver in cluster.drivers
    ]
    if not all(made):
        return False
    begin_s, end_s = max(times[0] for times in made), min(times[-1] for times in made)
    return all(sum(begin_s <= time_s <= end_s for time_s in times) >= steps for times in made)


def _ended(cluster: Cluster, steps: int) -> Trained:
    for driver in cluster.drivers:
        sign = cluster.plan.trainer.progress
        ended = cluster.run().exit_of(driver)
        if cluster.plan.trainer.of_user and ended and ended["code"] == 0:
            continue  # its length may be its own
        cluster.wait_for(sign, driver, where=lambda e: e["global_step"] >= steps)
    used = cluster.use()
    peaks_mib = {task: use.peak_mib for task, use in used.items() if use.peak_mib}
    return Trained(cluster.run(), sum(use.processor_s for use in used.values()), peaks_mib)
