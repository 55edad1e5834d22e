"""Options of the suite: one field of `Settings` is the row of one option.

The row says how the option is spelled and read, what `--help` prints, and how a reproduce line
repeats it. pytest's command line, the settings of a session, what workers of pytest-xdist get and
reproduce lines follow from these rows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reference_trainers import BY_NAME
from reports.core.text import seconds_of
from suite.harness.core import backends
from suite.harness.core.errors import BadInput
from suite.harness.core.versions import FLAVORS

LARGEST_SEED = 2**31 - 1  # the largest that both numpy and TensorFlow accept
# What glibc's malloc does with memory that was freed; a row for each value of --malloc. By default
# it gives much of it back to the kernel in every step, and has it mapped and zeroed again in the
# next: how much depends on where things happen to lie, which differs from process to process. To
# `keep` it takes all three: a thread's heap (64 MiB) that is empty is given back, whatever the
# threshold, unless TOP_PAD is as large (mallopt(3); glibc's malloc/arena.c, heap_trim).
MALLOC: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "default": {},
        "keep": {
            "MALLOC_TRIM_THRESHOLD_": "-1",
            "MALLOC_MMAP_MAX_": "0",
            "MALLOC_TOP_PAD_": str(64 * 2**20),
        },
    }
)
ALWAYS, IF_SET, PAIRED = "always", "if set", "paired"  # when a reproduce line repeats an option


@dataclass(frozen=True)
class Option:
    """The command line's part of a row.

    `read` returns the setting for the text (for a repeatable option the list of texts) that was
    given after `flag`, or raises BadInput. Without a `metavar` the option is a switch. `text`
    returns what `read` understands. `mark`: the mark of tests that run only with this switch.
    """

    flag: str
    help: str
    read: Callable[[str, Any], Any]
    metavar: str = ""
    repeatable: bool = False
    reproduce: str = ""
    text: Callable[[Any], str] = str
    mark: str = ""

    @property
    def name(self) -> str:
        """Return the attribute that argparse gives the option."""
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the arguments of argparse's `add_argument`.

        Values stay text: argparse's own refusals are several lines long and exit late.
        """
        if not self.metavar:
            return {"action": "store_true", "help": self.help}
        shown = {"metavar": self.metavar, "help": self.help}
        return {**shown, "action": "append", "default": []} if self.repeatable else shown


def known(names: Collection[str]) -> Callable[[str, Any], Any]:
    """Return a reader of one of these names, or of several as a tuple without repetitions."""

    def read(flag: str, given: Any) -> Any:
        for name in [given] if isinstance(given, str) else given:
            if name not in names:
                raise BadInput(f"{flag} {name}: unknown; choose from {', '.join(names)}")
        return given if isinstance(given, str) else tuple(dict.fromkeys(given))

    return read


def names_or_paths(flag: str, given: list[str]) -> tuple[str, ...]:
    """Return names of trainers, and absolute paths of programs."""
    names = [text for text in given if not is_path(text)]
    known(BY_NAME)(flag, names)
    return tuple(dict.fromkeys(absolute(flag, t) if is_path(t) else t for t in given))


def is_path(text: str) -> bool:
    """Return True if a value of --trainer is a path: it has a slash, or ends as a file does."""
    return "/" in text or text.endswith((".py", ".toml", ".sh"))


def number(
    kind: type, least: float, most: float, unit: float | None = None
) -> Callable[[str, str], Any]:
    """Return a reader of a number from `least` to `most`, divided by `unit`."""

    def read(flag: str, given: str) -> Any:
        try:
            value = kind(given)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            wanted = "a whole number" if kind is int else "a number"
            raise BadInput(f"{flag} {given}: must be {wanted} from {least} to {most}")
        return value / unit if unit else value

    return read


def variables(flag: str, given: list[str]) -> tuple[str, ...]:
    """Return assignments of variables of the environment, `NAME=VALUE`."""
    for text in given:
        if not re.match(r"[A-Za-z_]\w*=", text):
            raise BadInput(f"{flag} {text}: must be NAME=VALUE")
    return tuple(given)


def duration(least_s: float, most_s: float) -> Callable[[str, str], float]:
    """Return a reader of a duration in seconds: `90`, `90s`, `1.5m` or `1h`."""

    def read(flag: str, given: str) -> float:
        seconds = seconds_of(given)
        if seconds is None or not least_s <= seconds <= most_s:
            raise BadInput(
                f"{flag} {given}: must be a duration from {least_s}s to {most_s}s, such as 90, 90s "
                "or 10m"
            )
        return seconds

    return read


def processors(flag: str, given: str) -> tuple[int, ...]:
    """Return the processors of a list with commas; BadInput for one that pytest may not use."""
    ours = os.sched_getaffinity(0)
    listed = [int(number) if number.isdecimal() else -1 for number in given.split(",")]
    if not set(listed) <= ours:
        here = ",".join(map(str, sorted(ours)))
        raise BadInput(f"{flag} {given}: must be processors with commas between, of {here}")
    return tuple(sorted(set(listed)))


def as_given(_: str, given: Any) -> Any:
    return given


def absolute(_: str, given: str) -> str:
    return str(Path(given).resolve())


def directory(flag: str, given: str) -> str:
    """Return the absolute path of a directory that may have to be created."""
    path = Path(given).resolve()
    if path.exists() and not path.is_dir():
        raise BadInput(f"{flag} {given}: must be a directory")
    return str(path)


def general(value: float) -> str:
    return f"{value:g}"


def option(default: Any, *arguments: Any, **named: Any) -> Any:
    """Return the field of `Settings` with this default and `Option(*arguments, **named)`."""
    return field(default=default, metadata={"option": Option(*arguments, **named)})


@dataclass(frozen=True)
class Settings:
    """Hold the checked options; a default means that the option was not given."""

    trainers: tuple[str, ...] = option(
        (), "--trainer", "only this trainer, or your program: train.py, train.toml",
        names_or_paths, "NAME|PATH", repeatable=True,
    )  # fmt: skip
    # Of a row's backends and flavors, some tests take the first of those that were asked for.
    backends: tuple[str, ...] = option(
        (), "--backend", "only this: auto, ring, nccl", known(backends.BY_NAME), "NAME",
        repeatable=True, reproduce=IF_SET,
    )  # fmt: skip
    keras: tuple[str, ...] = option(
        (), "--keras", "keras2, tf_keras, keras3", known(FLAVORS), "FLAVOR",
        repeatable=True, reproduce=IF_SET,
    )  # fmt: skip
    workers: int | None = option(
        None, "--workers", "training workers of every cluster (ps not counted)",
        number(int, 1, 64), "N", reproduce=IF_SET,
    )  # fmt: skip
    data: str | None = option(
        None, "--data", "MNIST as Keras' mnist.npz (default: its cache, else digits)",
        absolute, "NPZ", reproduce=ALWAYS,
    )  # fmt: skip
    run_dir: str | None = option(
        None, "--run-dir", "where the run goes (default: reports/runs/<time>)", as_given, "DIR"
    )
    python: str | None = option(
        None, "--python", "interpreter of the tasks (default: pytest's own)",
        as_given, "PATH", reproduce=IF_SET,
    )  # fmt: skip
    spawn: str = option(
        "", "--spawn", "fork, or exec: plain processes (default: fork; your program: exec)",
        known(("fork", "exec")), "HOW", reproduce=IF_SET,
    )  # fmt: skip
    engine: str = option(
        "local", "--engine", "local, or ray: where the tasks run (default: local)",
        known(("local", "ray")), "NAME", reproduce=IF_SET,
    )  # fmt: skip
    ray_address: str | None = option(
        None, "--ray-address", "of a Ray cluster (default: nodes on this machine)",
        as_given, "ADDRESS", reproduce=IF_SET,
    )  # fmt: skip
    shared_dir: str | None = option(
        None, "--shared-dir", "a directory that every node of the Ray cluster mounts",
        directory, "DIR", reproduce=IF_SET,
    )  # fmt: skip
    placement: str | None = option(
        None, "--placement", "spread, or strict-spread: a node of Ray for each task",
        known(("spread", "strict-spread")), "NAME", reproduce=IF_SET,
    )  # fmt: skip
    kill_node: str | None = option(
        None, "--kill-node", "ends node {ip} of the Ray cluster, as 'ssh {ip} poweroff -f'",
        as_given, "COMMAND", reproduce=IF_SET,
    )  # fmt: skip
    deadline_scale: float = option(
        1.0, "--deadline-scale", "stretch every deadline by this factor",
        number(float, 0.01, 1000), "X", reproduce=IF_SET, text=general,
    )  # fmt: skip
    seed: int = option(
        0, "--seed", "of data order and weights (default: drawn, and reported)",
        number(int, 0, LARGEST_SEED), "N", reproduce=ALWAYS,
    )  # fmt: skip
    at_once: int = option(
        0, "--at-once", "scenarios that run at once (default: by processors, memory)",
        number(int, 1, 64), "N",
    )  # fmt: skip
    base: str | None = option(
        None, "--base", "an interpreter, backend, trainer, program, documented, same",
        as_given, "WHAT", reproduce=PAIRED,
    )  # fmt: skip
    new: str | None = option(
        None, "--new", "what is measured against it, of the same kind", as_given, "WHAT"
    )
    base_env: tuple[str, ...] = option(
        (), "--base-env", "variable of the base side only: NAME=VALUE", variables, "NAME=VALUE",
        repeatable=True, reproduce=PAIRED,
    )  # fmt: skip
    new_env: tuple[str, ...] = option(
        (), "--new-env", "variable of the new side only: NAME=VALUE", variables, "NAME=VALUE",
        repeatable=True, reproduce=PAIRED,
    )  # fmt: skip
    budget_s: float = option(
        60.0, "--budget", "timed steps of a side: 90, 90s, 10m (default: 60s)",
        duration(0.1, 3600), "TIME", reproduce=PAIRED, text=general,
    )  # fmt: skip
    control: bool = option(
        False, "--control", "also compare the base with itself, to follow ratios over days",
        as_given, reproduce=PAIRED,
    )  # fmt: skip
    times: int = option(
        1, "--times", "do each comparison so often, for trials",
        number(int, 1, 10_000), "N", reproduce=PAIRED,
    )  # fmt: skip
    slow_down: float = option(
        0.0, "--slow-down", "slow the new side down, for a trial",
        number(float, 0, 100, unit=100), "PERCENT",
        reproduce=PAIRED, text=lambda share: general(100 * share),
    )  # fmt: skip
    cpus: tuple[int, ...] = option(
        (), "--cpus", "processors of pytest and all tasks: 0,1 (default: all)",
        processors, "LIST", reproduce=IF_SET, text=lambda listed: ",".join(map(str, listed)),
    )  # fmt: skip
    threads: int | None = option(
        None, "--threads", "threads in each of TensorFlow's pools (default: its own)",
        number(int, 1, 1024), "N", reproduce=IF_SET,
    )  # fmt: skip
    malloc: str | None = option(
        None, "--malloc", "keep, or default: whether glibc keeps freed memory",
        known(MALLOC), "HOW", reproduce=IF_SET,
    )  # fmt: skip
    min_busbw_share: float = option(
        0.0, "--min-busbw-share", "fail if an all-reduce of 4 MiB reaches less of plain TCP",
        number(float, 0, 100, unit=100), "PERCENT",
        reproduce=IF_SET, text=lambda share: general(100 * share),
    )  # fmt: skip
    closed_ports: bool = option(
        False, "--closed-ports", "refuse to run where others can reach tasks", as_given
    )
    fault_matrix: bool = option(
        False, "--fault-matrix", "the whole fault matrix (default: its quick rows)",
        as_given, mark="matrix",
    )  # fmt: skip
    findings: bool = option(
        False, "--findings", "the standalone reproductions of docs/findings", as_given,
        mark="findings",
    )  # fmt: skip
    full: bool = option(
        False, "--full", "all of a benchmark run (default: where only benchmarks are named)",
        as_given, mark="full",
    )  # fmt: skip
    artifacts: str | None = option(
        None, "--artifacts", "save checkpoints and models here, load those of other versions",
        directory, "DIR", reproduce=IF_SET, mark="artifacts",
    )  # fmt: skip
    long: bool = option(
        False, "--long", "what takes minutes or more on its own", as_given, mark="long"
    )

    def takes_in(self, mark: str) -> bool:
        """Return True if tests with this mark of TAKEN_IN_BY belong to the run."""
        return bool(getattr(self, TAKEN_IN_BY[mark].name))

    def reproduce(self, *, paired: bool, marks: Collection[str]) -> Iterator[str]:
        """Yield the words that give a test these settings again.

        `paired`: the test compares two sides. `marks`: of the test.
        """
        always_first = sorted(fields(self), key=lambda f: f.metadata["option"].reproduce != ALWAYS)
        for each in always_first:
            row, value = each.metadata["option"], getattr(self, each.name)
            if row.mark in marks and not row.metavar:
                yield row.flag
            wanted = {ALWAYS: True, IF_SET: True, PAIRED: paired and self.base}.get(row.reproduce)
            if wanted and (row.reproduce == ALWAYS or value != each.default):
                for one in value if row.repeatable else [value]:
                    yield from (row.flag, row.text(one)) if row.metavar else (row.flag,)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Settings:
        """Return the settings of `to_dict`, after a way on which tuples became lists."""
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        given: dict[str, Any] = {**values, **lists}
        return cls(**given)


OPTIONS: Mapping[str, Option] = MappingProxyType(
    {each.name: each.metadata["option"] for each in fields(Settings)}
)
# Marks of tests that a run leaves out without an option. `-m`, which is pytest's own, only filters.
TAKEN_IN_BY: Mapping[str, Option] = MappingProxyType(
    {row.mark: row for row in OPTIONS.values() if row.mark}
)
