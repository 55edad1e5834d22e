"""Known deviations and unsupported features: the rows of suite/expectations.toml.

A row names the trainer, test and versions, the reason, and the message that identifies this failure
among others. A row that matches no test is an error, and so is a test that passes despite a row. So
the table cannot become stale without a failure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from reference_trainers import BY_NAME
from reports.core.labels import REPRODUCTION_TEST
from reports.core.verdicts import KNOWN_DEVIATION, UNSUPPORTED
from suite.harness.core import backends
from suite.harness.core.errors import BadInput
from suite.harness.core.versions import keras_in, version_in
from suite.harness.tables.toml_schema import (
    KEY,
    check_keys,
    check_predicates,
    check_url,
    convert,
    did_you_mean,
    read_toml,
)

PATH = Path(__file__).resolve().parents[2] / "expectations.toml"
ANY = "*"
STATUSES = (KNOWN_DEVIATION, UNSUPPORTED)


@dataclass(frozen=True)
class Row:
    """One expectation; "" means any, and so does None for properties of the machine."""

    trainer: str  # a trainer's name, or "*"
    test: str  # a test function's name, or "*"
    status: str  # known_deviation or unsupported
    reason: str  # one sentence for the report
    message: str  # regular expression; must match within the actual message
    url: str  # the thread or page to read
    finding: str = ""  # a standalone reproduction, docs/findings/NAME.py
    # Only scenarios whose name, as pytest shows it, matches; glob patterns such as "a-*|b-*".
    scene: str = ""
    backend: str = ""  # as requested
    tensorflow: str = ""  # PEP 440 specifier
    keras: str = ""  # see versions.keras_in
    protobuf: str = ""  # PEP 440 specifier, for a TensorFlow that allows versions it fails with
    gpu: bool | None = None  # only on machines with (or without) one for each worker
    real_mnist: bool | None = None  # only with (or without) the data of published figures
    namespaces: bool | None = None  # only with (or without) a separate network for each cluster
    nodes: bool | None = None  # only with (or without) nodes that the harness can end
    netem: bool | None = None  # only on kernels with (or without) delay and loss for links
    may_pass: bool = False  # depends on the time of a fault or the seed, so both are expected
    # tests that "*" excludes
    excepted: tuple[str, ...] = field(default=(), metadata={KEY: "except"})

    @classmethod
    def parse(cls, where: str, values: dict[str, Any]) -> Row:
        """Return a row from its TOML table; raise BadInput, with `where`, if it is invalid."""
        row = convert(where, values, cls)
        check_predicates(where, (row.tensorflow, row.protobuf), row.keras)
        check_url(where, row.url)
        if row.status not in STATUSES:
            raise BadInput(f"{where}: status must be one of {', '.join(STATUSES)}")
        try:
            re.compile(row.message)
        except re.error as error:
            raise BadInput(f"{where}: message is not a regular expression: {error}") from error
        if row.excepted and row.test != ANY:
            raise BadInput(f"{where}: except goes with test = {ANY!r} only")
        return row

    def applies(
        self,
        trainer: str,
        test: str,
        backend: str,
        tensorflow: str,
        keras: str,
        *,
        scene: str,
        protobuf: str,
        gpu: bool,
        real_mnist: bool,
        namespaces: bool,
        nodes: bool,
        netem: Callable[[], bool],
    ) -> bool:
        """Return True if the row applies to this test with these versions, machine and data."""
        return (
            self.trainer in (ANY, trainer)
            and (self.test == ANY or test in self.tests)
            and test not in self.excepted
            and (not self.scene or any(fnmatch(scene, like) for like in self.scenes))
            and self.backend in ("", backend)
            and self.gpu in (None, gpu)
            and self.real_mnist in (None, real_mnist)
            and self.namespaces in (None, namespaces)
            and self.nodes in (None, nodes)
            and self.covers(tensorflow, keras, protobuf)
            and (self.netem is None or self.netem == netem())  # last, since it runs a probe
        )

    def covers(self, tensorflow: str, keras: str, protobuf: str) -> bool:
        """Return True if the row applies to these versions."""
        return (
            version_in(tensorflow, self.tensorflow)
            and keras_in(keras, self.keras)
            and (not self.protobuf or (protobuf != "" and version_in(protobuf, self.protobuf)))
        )

    @property
    def tests(self) -> list[str]:
        return self.test.split("|")

    @property
    def scenes(self) -> list[str]:
        return self.scene.split("|")

    def confirms(self, message: str) -> bool:
        """Return True if the actual message is the one that this row predicts."""
        return re.search(self.message, message) is not None

    @property
    def weight(self) -> int:
        """Return the row's priority; among the rows that apply, the heaviest is used.

        A row for all tests outweighs a row for one test: if nothing works, a test's own reason is
        moot. The same holds for a row for machines without namespaces. Otherwise the most specific
        row wins.
        """
        pinned = (self.trainer != ANY) * 4 + bool(self.scene) * 2 + bool(self.backend)
        return (self.test == ANY) * 16 + (self.namespaces is False) * 8 + pinned


@dataclass(frozen=True)
class Expectations:
    """All rows, in the file's order."""

    rows: tuple[Row, ...] = ()

    @classmethod
    def load(cls, path: Path = PATH) -> Expectations:
        """Read and check the table; raise BadInput, in one line, if it is invalid."""
        content = read_toml(path)
        check_keys(path.name, content, {"expectation": list}, ())
        tables = content.get("expectation", [])
        return cls(
            tuple(Row.parse(f"{path.name}, row {i}", row) for i, row in enumerate(tables, start=1))
        )

    def match(
        self,
        trainer: str,
        test: str,
        backend: str,
        tensorflow: str,
        keras: str,
        *,
        scene: str = "",
        protobuf: str = "",
        gpu: bool = False,
        real_mnist: bool = False,
        namespaces: bool = True,
        nodes: bool = True,
        netem: Callable[[], bool] = lambda: True,
    ) -> Row | None:
        """Return the heaviest row for this test, the earlier of equals; None if no row applies.

        `test` is a test function's name, `scene` its scenario's, `keras` a label such as "tf_keras
        2.21.0" or "none", `protobuf` a version or "". `gpu`: every worker has one. `real_mnist`:
        results are comparable with published figures. `namespaces`: clusters have their own
        networks. `nodes`: the harness can end nodes. `netem`, called only if needed, returns True
        if links can have delay and loss.
        """
        case = (trainer, test, backend, tensorflow, keras)
        here = {"gpu": gpu, "real_mnist": real_mnist, "namespaces": namespaces, "nodes": nodes}
        here_too = {"scene": scene, "protobuf": protobuf, "netem": netem}
        found = [row for row in self.rows if row.applies(*case, **here, **here_too)]
        if test == REPRODUCTION_TEST and not found:
            return self.reproduced(scene, tensorflow, keras, protobuf)
        return max(found, key=lambda row: row.weight, default=None)

    def reproduced(self, finding: str, tensorflow: str, keras: str, protobuf: str) -> Row | None:
        """Return the first row of a finding for these versions; None if no row predicts it.

        The message of the row is about another test, so any observation confirms it.
        """
        here = (
            row
            for row in self.rows
            if row.finding == finding and row.covers(tensorflow, keras, protobuf)
        )
        row = next(here, None)
        return replace(row, message="") if row else None

    def check_against(
        self,
        tests: Iterable[str],
        trainers: Iterable[str] = tuple(BY_NAME),
        scenes: Iterable[str] = (),
        open_tests: Iterable[str] = (),
    ) -> list[str]:
        """Return one line for each name in the table that no longer exists.

        `tests` and `scenes` are the names of all collected tests and scenarios. The scenarios of
        `open_tests` depend on files, so there may be others elsewhere.
        """
        tests, trainers, scenes = set(tests), set(trainers), list(scenes)
        open_tests = set(open_tests)
        stale = []
        for number, row in enumerate(self.rows, start=1):
            for kind, name, known in (
                ("trainer", row.trainer, trainers),
                ("backend", row.backend, {*backends.BY_NAME, "none", ""}),
                *(("test", name, tests) for name in row.tests),
                *(
                    ("scene", like, {"", *(like for s in scenes if fnmatch(s, like))})
                    for like in row.scenes
                    if not open_tests.intersection(row.tests)
                ),
                *(("test", name, tests) for name in row.excepted),
            ):
                if name != ANY and name not in known:
                    near = did_you_mean(name, known)
                    stale.append(f"expectations.toml, row {number}: no {kind} {name!r}{near}")
        return stale
