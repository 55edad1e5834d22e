"""Run programs under the observer, with their own reports off, next to runs that report."""

from __future__ import annotations

from dataclasses import replace

from suite.harness.core.history import Run
from suite.harness.core.outcomes import Compared
from suite.harness.scenarios import fault_free
from suite.harness.scenarios.base import Launch, complete


def healthy(launch: Launch) -> Compared:
    """Observe the work of `fault_free.healthy`."""
    reported: Run = launch.outcome(fault_free.healthy)
    return Compared(_again(launch, reported), reported)


def continued(launch: Launch) -> Compared:
    """Observe the work of `fault_free.continued`; return the run that restores."""
    reported = launch.outcome(fault_free.continued)
    _again(launch, reported.run)
    return Compared(_again(launch, reported.then), reported.then)


def _again(launch: Launch, reported: Run) -> Run:
    """Repeat a run, observed, in a directory of its own."""
    flags = dict(reported.flags)
    if "export" in flags:
        flags["export"] = launch.directory / "export" / "saved"
    del flags["model-dir"]
    trainer = replace(launch.case.trainer, observed=True)
    return complete(launch, trainer, flags=flags, model_dir=launch.directory / "model")
