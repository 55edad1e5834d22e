"""The command line of the suite, from the rows of `Settings`; wrong values are one clear line."""

from __future__ import annotations

import argparse
import secrets
from pathlib import Path

import pytest

from suite.harness.ab import sides
from suite.harness.core.settings import LARGEST_SEED, OPTIONS, Settings
from suite.harness.environment import dataset


def is_worker(config: pytest.Config) -> bool:
    """Return True for a worker of pytest-xdist, which runs what the controller decided."""
    return hasattr(config, "workerinput")


def is_parallel(config: pytest.Config) -> bool:
    """Return True if other processes of pytest run tests at the same time."""
    return is_worker(config) or bool(getattr(config.option, "numprocesses", None))


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("tf-distribute-conformance")
    for row in OPTIONS.values():
        group.addoption(row.flag, **row.arguments)


def read(options: argparse.Namespace) -> Settings:
    """Return the settings for the parsed options; BadInput, in one line, for a wrong value."""
    for name, value in sides.chosen(options.base, options.new, options).items():
        setattr(options, name, value)
    if options.data is not None:
        dataset.must_be_file(Path(options.data), f"--data {options.data}")
    given = {field: getattr(options, row.name) for field, row in OPTIONS.items()}
    found = {
        field: OPTIONS[field].read(OPTIONS[field].flag, value)
        for field, value in given.items()
        if value is not None
    }
    found.setdefault("seed", secrets.randbelow(LARGEST_SEED))
    return Settings(**found)
