"""What is known to deviate or to be unsupported: the rows of suite/expectations.toml.

A row says for which trainer, test and versions, why, and what message proves that it is this and
nothing else that happened. A row that matches nothing any more is an error, as is a test that
passes in spite of one: the table can only be true or red.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from reference_trainers import BY_NAME
from suite.harness.core import backends
from suite.harness.core.errors import BadInput
from suite.harness.core.versions import (
    check_keys,
    check_predicates,
    check_url,
    did_you_mean,
    keras_in,
    read_toml,
    version_in,
)

PATH = Path(__file__).resolve().parents[2] / "expectations.toml"
ANY = "*"
KNOWN_DEVIATION = "known_deviation"
UNSUPPORTED = "unsupported"
STATUSES = (KNOWN_DEVIATION, UNSUPPORTED)

KINDS: dict[str, type] = {
    "trainer": str,
    "test": str,
    "except": list,
    "scene": str,
    "backend": str,
    "tensorflow": str,
    "keras": str,
    "gpu": bool,
    "real_mnist": bool,
    "namespaces": bool,
    "netem": bool,
    "status": str,
    "reason": str,
    "message": str,
    "url": str,
}
REQUIRED = ("trainer", "test", "status", "reason", "message", "url")


@dataclass(frozen=True)
class Row:
    """One expectation; "" (and None for what is true or false of a machine) means any."""

    trainer: str  # a trainer's name, or "*"
    test: str  # a test function's name, or "*"
    status: str  # known_deviation or unsupported
    reason: str  # one sentence for the report
    message: str  # regular expression that the message which really came must contain
    url: str  # the thread or page to read
    # Of a test that plays several: whose name, as pytest shows it, is like one of "a-*|b-*".
    scene: str = ""
    backend: str = ""  # as requested
    tensorflow: str = ""  # PEP 440 specifier
    keras: str = ""  # see rows.keras_in
    gpu: bool | None = None  # only on machines with (or without) one for each worker
    real_mnist: bool | None = None  # only where the data are (or are not) what documents print of
    namespaces: bool | None = None  # only where clusters have (or have not) a network of their own
    netem: bool | None = None  # only on kernels that can (or cannot) give links delay and loss
    excepted: tuple[str, ...] = ()  # tests that "*" does not mean

    @classmethod
    def parse(cls, where: str, values: dict[str, Any]) -> Row:
        """A row from its TOML table; BadInput, naming `where`, for what cannot be read."""
        check_keys(where, values, KINDS, REQUIRED)
        check_predicates(where, values)
        check_url(where, values["url"])
        if values["status"] not in STATUSES:
            raise BadInput(f"{where}: status must be one of {', '.join(STATUSES)}")
        try:
            re.compile(values["message"])
        except re.error as error:
            raise BadInput(f"{where}: message is not a regular expression: {error}") from error
        excepted = tuple(values.get("except", ()))
        if excepted and values["test"] != ANY:
            raise BadInput(f"{where}: except goes with test = {ANY!r} only")
        fields = {key: value for key, value in values.items() if key != "except"}
        return cls(**fields, excepted=excepted)

    def applies(
        self,
        trainer: str,
        test: str,
        backend: str,
        tensorflow: str,
        keras: str,
        *,
        scene: str,
        gpu: bool,
        real_mnist: bool,
        namespaces: bool,
        netem: Callable[[], bool],
    ) -> bool:
        """Whether the row speaks of this test under these versions, on this machine and data."""
        return (
            self.trainer in (ANY, trainer)
            and (self.test == ANY or test in self.tests)
            and test not in self.excepted
            and (not self.scene or any(fnmatch(scene, like) for like in self.scenes))
            and self.backend in ("", backend)
            and self.gpu in (None, gpu)
            and self.real_mnist in (None, real_mnist)
            and self.namespaces in (None, namespaces)
            and version_in(tensorflow, self.tensorflow)
            and keras_in(keras, self.keras)
            and (self.netem is None or self.netem == netem())  # last: it has to be tried
        )

    @property
    def tests(self) -> list[str]:
        return self.test.split("|")

    @property
    def scenes(self) -> list[str]:
        return self.scene.split("|")

    def confirms(self, message: str) -> bool:
        """Whether a message that really came is the one that this row foretells."""
        return re.search(self.message, message) is not None

    @property
    def weight(self) -> int:
        """The heaviest row that applies counts: where nothing works, one test's reason is moot.

        So is what an approach does where a machine lacks what it takes to try. Else the one that
        pins down most.
        """
        pinned = (self.trainer != ANY) * 4 + bool(self.scene) * 2 + bool(self.backend)
        return (self.test == ANY) * 16 + (self.namespaces is False) * 8 + pinned


@dataclass(frozen=True)
class Expectations:
    """All rows, in the file's order."""

    rows: tuple[Row, ...] = ()

    @classmethod
    def load(cls, path: Path = PATH) -> Expectations:
        """Read and check the table; BadInput, in one line, when it is not right."""
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
        gpu: bool = False,
        real_mnist: bool = False,
        namespaces: bool = True,
        netem: Callable[[], bool] = lambda: True,
    ) -> Row | None:
        """The heaviest row for this test, the earlier of equals; None where all is promised.

        `test` is a test function's name, `scene` that of what it plays, `keras` a label as
        "tf_keras 2.21.0" or "none", `gpu` whether every worker has one, `real_mnist` whether
        published figures can be compared with, `namespaces` whether clusters have a network of
        their own; `netem`, asked only where it counts, whether links can have delay and loss.
        """
        case = (trainer, test, backend, tensorflow, keras)
        here = {"gpu": gpu, "real_mnist": real_mnist, "namespaces": namespaces}
        here_too = {"scene": scene, "netem": netem}
        found = [row for row in self.rows if row.applies(*case, **here, **here_too)]
        return max(found, key=lambda row: row.weight, default=None)

    def check_against(
        self,
        tests: Iterable[str],
        trainers: Iterable[str] = tuple(BY_NAME),
        scenes: Iterable[str] = (),
    ) -> list[str]:
        """One line for each name in the table that no longer exists.

        `tests` and `scenes` are those of all that was collected.
        """
        tests, trainers, scenes = set(tests), set(trainers), list(scenes)
        stale = []
        for number, row in enumerate(self.rows, start=1):
            for kind, name, known in (
                ("trainer", row.trainer, trainers),
                ("backend", row.backend, {*backends.BY_NAME, "none", ""}),
                *(("test", name, tests) for name in row.tests),
                *(
                    ("scene", like, {"", *(like for s in scenes if fnmatch(s, like))})
                    for like in row.scenes
                ),
                *(("test", name, tests) for name in row.excepted),
            ):
                if name != ANY and name not in known:
                    near = did_you_mean(name, known)
                    stale.append(f"expectations.toml, row {number}: no {kind} {name!r}{near}")
        return stale
