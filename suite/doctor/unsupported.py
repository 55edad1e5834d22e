"""Which rows of expectations.toml apply here: what will be unsupported, and what deviates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from reference_trainers import BY_NAME
from reports.core.text import plural
from reports.core.verdicts import KNOWN_DEVIATION, UNSUPPORTED
from suite.doctor.findings import Listing
from suite.harness.core.versions import NO_KERAS
from suite.harness.environment.interpreter import Interpreter
from suite.harness.tables.expectations import ANY, Row


@dataclass(frozen=True)
class Machine:
    """What rows ask of a machine; `netem` is called only if a row needs the answer."""

    gpu: bool
    namespaces: bool
    nodes: bool
    netem: Callable[[], bool]


def matching(rows: Iterable[Row], interpreter: Interpreter, machine: Machine) -> list[Row]:
    """Return the rows that apply here with some Keras flavor; those on data are included.

    Whether real MNIST can be had shows only a run, since the suite tries to download it.
    """
    return [
        row
        for row in rows
        if row.gpu in (None, machine.gpu)
        and row.namespaces in (None, machine.namespaces)
        and row.nodes in (None, machine.nodes)
        and any(
            row.covers(interpreter.tensorflow, label, interpreter.protobuf)
            for label in labels(row, interpreter)
        )
        and (row.netem is None or row.netem == machine.netem())
    ]


def labels(row: Row, interpreter: Interpreter) -> list[str]:
    """Return the Keras labels with which the trainers of a row run here."""
    flavors = list(map(interpreter.label, interpreter.flavors))
    if row.trainer == ANY:
        return [*flavors, NO_KERAS]
    return flavors if BY_NAME[row.trainer].keras else [NO_KERAS]


def listings(rows: Sequence[Row]) -> tuple[Listing, ...]:
    """Return what is unsupported, and the approaches that do not train at all."""
    deviating = [row for row in rows if row.status == KNOWN_DEVIATION]
    whole = [row for row in deviating if row.test == ANY]
    others = plural(len(deviating) - len(whole), "other known deviation")
    unsupported = [row for row in rows if row.status == UNSUPPORTED]
    return (
        Listing("Unsupported here", _entries(unsupported)),
        Listing(
            "Approaches that do not train with this TensorFlow",
            _entries(whole),
            f"There are {others}: docs/reference/deviations.md, or --json.",
        ),
    )


def _entries(rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    """Return each reason once, with its trainers and tests; those of all tests come first."""
    by_reason: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.test != ANY):
        by_reason.setdefault(row.reason, []).append(row)
    return tuple(
        (reason, "; ".join(dict.fromkeys(map(_concerns, same))))
        for reason, same in by_reason.items()
    )


def _concerns(row: Row) -> str:
    """Return which tests of which trainers a row is about, and under which condition."""
    trainer = "every trainer" if row.trainer == ANY else row.trainer
    tests = "all tests" if row.test == ANY else ", ".join(row.tests)
    parts = [
        f"({', '.join(row.scenes)})" if row.scene else "",
        f"with {' or '.join(row.keras.split('|'))}" if row.keras else "",
        f"for backend {row.backend}" if row.backend else "",
        "unless MNIST is found or downloaded" if row.real_mnist is False else "",
        "with MNIST" if row.real_mnist else "",
    ]
    return " ".join([f"{trainer}: {tests}", *filter(None, parts)])


def to_dict(row: Row) -> dict[str, object]:
    return {name: value for name, value in vars(row).items() if value not in ("", None, ())}
