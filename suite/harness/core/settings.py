"""The user's options as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

# Marks of tests that a run excludes by default, the option that includes them, and its help.
# pytest's own `-m` only filters the tests that are included.
TAKEN_IN_BY = {
    "matrix": ("--fault-matrix", "the whole fault table (default: its quick rows)"),
    "full": ("--full", "all of a benchmark run (default: where only benchmarks are named)"),
    "long": ("--long", "what takes minutes or more on its own"),
}


@dataclass(frozen=True)
class Settings:
    """The user's validated options; an empty tuple or None means that the option was not given."""

    trainers: tuple[str, ...]
    backends: tuple[str, ...]
    keras: tuple[str, ...]
    workers: int | None
    data: str | None
    run_dir: str | None
    python: str | None
    spawn: str
    deadline_scale: float
    seed: int
    at_once: int = 1  # concurrent scenarios; 0: chosen by processors and memory
    base: str | None = None  # of a paired comparison; the other options describe the new side
    budget_s: float = 60.0  # of timed steps, of each side
    slow_down: float = 0.0  # injected into the new side, as a share of a step
    times: int = 1  # comparisons of each kind
    cpus: tuple[int, ...] = ()  # to which pytest and all tasks are bound
    threads: int | None = None  # in each of TensorFlow's pools; None: TensorFlow's default
    malloc: str | None = None  # a row of launcher.MALLOC; None: each test's default
    closed_ports: bool = False  # refuse to run where other users or machines could reach tasks
    full: bool = False  # complete benchmarks, also those too long for a run of everything
    fault_matrix: bool = False
    long: bool = False

    def takes_in(self, mark: str) -> bool:
        """Return True if tests with this mark of TAKEN_IN_BY belong to the run."""
        return getattr(self, _attribute(TAKEN_IN_BY[mark][0]))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Settings:
        lists = {k: tuple(values[k]) for k in ("trainers", "backends", "keras", "cpus")}
        return cls(**{**values, **lists})


def _attribute(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")
