"""Run programs under the observer, with their own reports off, next to runs that report.

Plain trainers have no reports of their own. A program that trains as they do takes their place.
"""

from __future__ import annotations

from dataclasses import replace

from reference_trainers import Trainer
from suite.harness.core.history import Run
from suite.harness.core.outcomes import Compared, Continued
from suite.harness.scenarios import fault_free
from suite.harness.scenarios.base import Launch, complete, preemptible, program, work

# Programs that report, with their flags.
OF_LOOP = ("backend", "devices", "model", "precision", "order", "optimizer", "learning-rate")
KNOWN = {
    "preemptible_loop": OF_LOOP,
    "preemptible_fit": (*OF_LOOP, "evaluate", "export", "save-every"),
    "dtensor_loop": ("devices", "optimizer", "learning-rate", "save-every"),
}


def reporting(launch: Launch) -> Trainer:
    """Return the case's trainer, or in place of a plain one a program that reports the same."""
    row = launch.case.trainer
    if not row.plain:
        return row
    name = "dtensor_loop" if "dtensor" in row.families else preemptible(row)
    return program(launch, name, flags=tuple(flag for flag in KNOWN[name] if flag in row.flags))


def healthy(launch: Launch) -> Compared:
    """Observe the work of `fault_free.healthy`."""
    if launch.case.trainer.plain:
        reported = _until(launch, epochs=3)
    else:
        reported = launch.outcome(fault_free.healthy)
    return Compared(_again(launch, reported), reported)


def continued(launch: Launch) -> Compared:
    """Observe the work of `fault_free.continued`; return the run that restores."""
    if launch.case.trainer.plain:
        reported = Continued(_until(launch, epochs=1), _until(launch, epochs=2))
    else:
        reported = launch.outcome(fault_free.continued)
    _again(launch, reported.run)
    return Compared(_again(launch, reported.then), reported.then)


def _until(launch: Launch, epochs: int) -> Run:
    trainer = reporting(launch)
    flags = work(launch, trainer, epochs=epochs)
    return complete(launch, trainer, flags=flags, model_dir=launch.directory / "reported")


def _again(launch: Launch, reported: Run) -> Run:
    """Repeat a run, observed, in a directory of its own."""
    flags = dict(reported.flags)
    if "export" in flags:
        flags["export"] = launch.directory / "export" / "saved"
    del flags["model-dir"]
    trainer = replace(reporting(launch), observed=True)
    return complete(launch, trainer, flags=flags, model_dir=launch.directory / "model")
