"""Define checks: pure functions over histories that raise CheckFailed or return None.

A check states one property. Its message shows both sides of a violation. The helpers below fail on
missing data, so that a check never passes on nothing. Each check has a fake trainer in suite/meta
that makes this check, and no other, fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from suite.harness.core.errors import CheckFailed, NotExamined
from suite.harness.core.history import Event, Run

CHECKS: dict[str, Callable[..., None]] = {}
F = TypeVar("F", bound=Callable[..., None])
T = TypeVar("T")


def check(function: F) -> F:
    """Register a check under its function's name."""
    CHECKS[function.__name__] = function
    return function


def require(holds: object, message: str) -> None:
    if not holds:
        raise CheckFailed(message)


def equal(what: str, found: object, wanted: object) -> None:
    require(found == wanted, f"{what}: {found!r}, not {wanted!r}")


def close(what: str, found: float, wanted: float, relative: float) -> None:
    """Require equality up to rounding. NaN is never close."""
    require(
        math.isclose(found, wanted, rel_tol=relative, abs_tol=1e-12),
        f"{what}: {found!r} against {wanted!r}, more than {relative:g} (relative) apart",
    )


def same(what: str, sides: Mapping[str, Any]) -> Any:
    """Require that all sides (name -> value) are equal, and at least one. Return the value."""
    require(sides, f"{what}: no report")
    (first, wanted), *others = sides.items()
    for name, found in others:
        require(found == wanted, f"{what}: {name} has {found!r}, {first} has {wanted!r}")
    return wanted


def reported(run: Run, event: str, name: str) -> None:
    """Raise NotExamined if a user's program leaves this field out of any such event."""
    if run.trainer.of_user and any(each.get(name) is None for each in run.of(event)):
        raise NotExamined(f"it does not report {name} of each {event} (see training_reports.py)")


def some(what: str, found: Iterable[T]) -> list[T]:
    """Return all items as a list; require at least one."""
    items = list(found)
    require(items, f"there is no {what}")
    return items


def only(what: str, found: Iterable[T]) -> T:
    """Return the only item; require exactly one."""
    items = list(found)
    equal(f"number of {what}", len(items), 1)
    return items[0]


def last_attempt(run: Run, task: str) -> int:
    """Return the number of the task's last attempt."""
    return max((e.attempt for e in run.events if e.task == task), default=0)


def weights(run: Run, when: str, task: str, attempt: int | None = None) -> list[Event]:
    """Return the `weights` events of one kind: initial, epoch or final."""
    return [e for e in run.of("weights", task, attempt) if e["when"] == when]


def flag_value(run: Run, flag: str) -> Any:
    """Return the value of a flag of the run; require that the flag was given."""
    require(run.flags.get(flag) is not None, f"the run was started without --{flag}")
    return run.flags[flag]


def requested_steps(run: Run) -> int:
    """Return the number of steps that were requested, over all epochs."""
    return int(flag_value(run, "epochs")) * int(flag_value(run, "steps-per-epoch"))
