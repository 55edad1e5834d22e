"""Check callbacks: the output of the documents' callbacks while Keras trains."""

from __future__ import annotations

import re

from suite.harness.checks.assertions import check, close, equal, flag_value, require, some
from suite.harness.core.history import Run

PRINTED = re.compile(r"Learning rate for epoch (\d+) is (\S+)")
RATES = ("learning_rate", "lr")  # Keras 3, and before
FLOAT32 = 1e-6  # relative; one side passed through float32
# First epoch and factor of the initial rate: the document's 1e-3, 1e-4 and 1e-5 at epochs 1 to 3, 4
# to 7 and 8 to 12.
SCHEDULE = ((1, 1.0), (4, 0.1), (8, 0.01))


def _factor(epoch: int) -> float:
    return next(factor for first, factor in reversed(SCHEDULE) if epoch >= first)


@check
def learning_rate_follows_schedule(run: Run) -> None:
    """Require that each epoch trains at the schedule's rate and prints it."""
    base = float(flag_value(run, "learning-rate"))
    for task in run.workers:
        epochs = some(f"epoch of {task}", run.of("epoch", task))
        last = epochs[-1]["epoch"]
        require(last > SCHEDULE[-1][0], f"{last} epochs do not reach the schedule's last part")
        printed = {int(epoch): float(rate) for epoch, rate in PRINTED.findall(run.log(task))}
        equal(f"epochs whose rate {task} printed", sorted(printed), [e["epoch"] for e in epochs])
        for e in epochs:
            wanted = base * _factor(e["epoch"])
            rates = some("learning rate", (e["metrics"][k] for k in RATES if k in e["metrics"]))
            close(f"learning rate of epoch {e['epoch']}", rates[0], wanted, FLOAT32)
            close(f"rate printed for epoch {e['epoch']}", printed[e["epoch"]], wanted, FLOAT32)


@check
def event_files_hold_the_metrics(run: Run, then: Run) -> None:
    """Require the reported loss and accuracy of each epoch in event files (read by `then`)."""
    found = {
        (e["tag"], e["global_step"]): e["value"]
        for e in some("scalar in event files", then.of("summary"))
        if e["path"] == "train"
    }
    for e in some("epoch", run.of("epoch", run.workers[0])):
        for name in ("loss", "accuracy"):
            key = (f"epoch_{name}", e["epoch"] - 1)
            require(key in found, f"no {key[0]} of epoch {e['epoch']} in {sorted(found)}")
            close(f"{key[0]} of epoch {e['epoch']}", found[key], e["metrics"][name], FLOAT32)
