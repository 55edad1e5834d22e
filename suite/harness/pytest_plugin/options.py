"""Define the command line of the suite, and check its values before anything starts."""

from __future__ import annotations

import argparse
import os
import secrets
from pathlib import Path
from typing import Any

import pytest

from reference_trainers import BY_NAME
from suite.harness.ab import sides
from suite.harness.cluster.launcher import MALLOC
from suite.harness.core import backends
from suite.harness.core.errors import BadInput
from suite.harness.core.settings import TAKEN_IN_BY, Settings, _attribute
from suite.harness.core.versions import FLAVOURS
from suite.harness.environment import dataset as data

LARGEST_SEED = 2**31 - 1  # the largest that both numpy and TensorFlow accept


def is_worker(config: pytest.Config) -> bool:
    """Return True in a worker of pytest-xdist, which runs the tests that the controller chose."""
    return hasattr(config, "workerinput")


def is_parallel(config: pytest.Config) -> bool:
    """Return True if other pytest processes run tests at the same time."""
    return is_worker(config) or bool(getattr(config.option, "numprocesses", None))


def add_options(parser: pytest.Parser) -> None:
    """Add the options, all as strings: argparse's own errors take several lines and exit late."""
    group = parser.getgroup("tf-distribute-conformance")
    add = group.addoption
    add("--trainer", action="append", default=[], metavar="NAME", help="only this trainer")
    add(
        "--backend", action="append", default=[], metavar="NAME", help="only this: auto, ring, nccl"
    )
    add("--keras", action="append", default=[], metavar="FLAVOUR", help="keras2, tf_keras, keras3")
    add("--workers", metavar="N", help="training workers of every cluster (ps not counted)")
    add("--data", metavar="NPZ", help="MNIST as Keras' mnist.npz (default: its cache, else digits)")
    add("--run-dir", metavar="DIR", help="where the run goes (default: reports/runs/<time>)")
    add("--python", metavar="PATH", help="interpreter of the tasks (default: pytest's own)")
    add("--spawn", default="fork", metavar="HOW", help="fork (default) or exec: plain processes")
    add("--deadline-scale", default="1", metavar="X", help="stretch every deadline by this factor")
    add("--at-once", metavar="N", help="scenarios played at once (default: by processors, memory)")
    add("--base", metavar="WHAT", help="an interpreter, a backend, a trainer, documented, same")
    add("--new", metavar="WHAT", help="what is measured against it, of the same kind")
    add("--budget", default="60", metavar="S", help="seconds of timed steps a side (default: 60)")
    add("--slow-down", default="0", metavar="PERCENT", help="slow the new side down, for a trial")
    add("--times", default="1", metavar="N", help="do each comparison so often, for trials")
    add("--cpus", metavar="LIST", help="processors of pytest and all tasks: 0,1 (default: all)")
    add("--threads", metavar="N", help="threads in each of TensorFlow's pools (default: its own)")
    add("--malloc", metavar="HOW", help="keep, or default: whether glibc keeps freed memory")
    for option, meaning in TAKEN_IN_BY.values():
        add(option, action="store_true", help=meaning)
    add("--closed-ports", action="store_true", help="refuse to run where others can reach tasks")
    add("--seed", metavar="N", help="of data order and weights (default: drawn, and reported)")


def _known(option: str, given: list[str], known: Any) -> tuple[str, ...]:
    for name in given:
        if name not in known:
            raise BadInput(f"{option} {name}: unknown; choose from {', '.join(known)}")
    return tuple(dict.fromkeys(given))


def _number(option: str, text: str | None, kind: type, least: float, most: float) -> Any:
    if text is None:
        return None
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        wanted = "a whole number" if kind is int else "a number"
        raise BadInput(f"{option} {text}: must be {wanted} from {least} to {most}")
    return value


def _processors(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    ours = os.sched_getaffinity(0)
    given = [int(number) if number.isdecimal() else -1 for number in text.split(",")]
    if not set(given) <= ours:
        here = ",".join(map(str, sorted(ours)))
        raise BadInput(f"--cpus {text}: must be processors with commas between, of {here}")
    return tuple(sorted(set(given)))


def read(options: argparse.Namespace) -> Settings:
    """Return the settings of the parsed options. Raise BadInput, in one line, for a bad value."""
    for option, value in sides.chosen(options.base, options.new, options).items():
        setattr(options, option, value)
    workers = _number("--workers", options.workers, int, 1, 64)
    at_once = _number("--at-once", options.at_once, int, 1, 64)
    scale = _number("--deadline-scale", options.deadline_scale, float, 0.01, 1000)
    seed = _number("--seed", options.seed, int, 0, LARGEST_SEED)
    if options.data is not None:
        data.must_be_file(Path(options.data), f"--data {options.data}")
    return Settings(
        trainers=_known("--trainer", options.trainer, BY_NAME),
        backends=_known("--backend", options.backend, backends.BY_NAME),
        keras=_known("--keras", options.keras, FLAVOURS),
        workers=workers,
        data=options.data and str(Path(options.data).resolve()),
        run_dir=options.run_dir,
        python=options.python,
        spawn=_known("--spawn", [options.spawn], ("fork", "exec"))[0],
        deadline_scale=scale,
        seed=secrets.randbelow(LARGEST_SEED) if seed is None else seed,
        at_once=at_once or 0,
        base=options.base,
        budget_s=_number("--budget", options.budget, float, 1, 3600),
        slow_down=_number("--slow-down", options.slow_down, float, 0, 100) / 100,
        times=_number("--times", options.times, int, 1, 10_000),
        cpus=_processors(options.cpus),
        threads=_number("--threads", options.threads, int, 1, 1024),
        closed_ports=options.closed_ports,
        malloc=None if options.malloc is None else _known("--malloc", [options.malloc], MALLOC)[0],
        **{name: getattr(options, name) for name in map(_attribute, dict(TAKEN_IN_BY.values()))},
    )
