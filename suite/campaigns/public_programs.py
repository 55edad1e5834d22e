"""Public programs, unchanged: where each comes from, how it is run, and what was found in it.

Their code is not part of the project. `place` fetches the files of a program at a commit, holds
them to their digest, and puts the TOML files of suite/programs/public next to them, one a level.
Two programs need a start of ours: what Ray Train does in a worker, and the names of TensorFlow 1.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reports.core.table import Column, Row, Table
from reports.core.verdicts import FAILED, HARNESS_ERROR, KNOWN_DEVIATION, PASSED, UNSUPPORTED
from reports.rundir.frame import BadInput, RunFrames
from suite.harness.core.paths import ROOT

DESCRIPTIONS = ROOT / "suite" / "programs" / "public"
HOSTED = "https://github.com"


@dataclass(frozen=True)
class Program:
    """A public program at a commit, or in a release of PyPI, and what a run of it must say.

    `files`: paths in the repository; of a notebook, the files that its cells write. `digest`: of
    their content, or of the release. `starts`: files of ours that run it. `tensorflow`: the version
    with which it was examined. `found`: test that fails -> what it found in the program.
    """

    name: str
    repository: str
    files: tuple[str, ...]
    digest: str
    tensorflow: str
    commit: str = ""
    release: str = ""
    starts: tuple[str, ...] = ()
    found: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def origin(self) -> str:
        """Return the repository at the commit, or the release, with the file that is run."""
        at = f"{self.repository}@{self.commit[:7]}" if self.commit else self.release
        return f"{at}, {Path(self.files[0]).name}"

    @property
    def descriptions(self) -> list[Path]:
        return sorted(DESCRIPTIONS.glob(f"{self.name}_[0-2].toml"))


DOCS = "7c3650212740204359d4ceae481abc79345541be"
TUTORIALS = "site/en/tutorials/distribute"
OPERATOR = "ee1162919408cbca4a899f2916cfcd0ecd562881"
ARENA = "a89c4693d1bee28ba900ac50777629ab06497841"
PROGRAMS = (
    Program(
        "keras_tutorial",
        "tensorflow/docs",
        (f"{TUTORIALS}/multi_worker_with_keras.ipynb",),
        "0f0d327aa1f37e86",
        "2.15",
        DOCS,
    ),
    Program(
        "ctl_tutorial",
        "tensorflow/docs",
        (f"{TUTORIALS}/multi_worker_with_ctl.ipynb",),
        "6049c17452b8f3fe",
        "2.15",
        DOCS,
        found={
            "test_restart_restores_the_latest_save": "Nothing is restored after a restart: the "
            "checkpoints are in a temporary directory of multiprocessing, and each process has "
            "another one.",
        },
    ),
    Program(
        "kubeflow_ps",
        "kubeflow/training-operator",
        ("examples/tensorflow/dist-mnist/dist_mnist.py", "examples/tensorflow/mnist_utils.py"),
        "91dfdc315c973c61",
        "2.21",
        OPERATOR,
    ),
    Program(
        "kubeflow_tf1",
        "kubeflow/training-operator",
        ("examples/tensorflow/dist-mnist/dist_mnist.py",),
        "193dd96eb83ab1a8",
        "2.15",
        "25b8a5b57b3d7a0974c2ccd9ffbd03bca85698c0",
        starts=("run_tf1.py",),
        found={
            "test_the_supervisor_saves_while_it_trains": "The trained model is saved nowhere. The "
            "Supervisor saves the first state, then at its default interval, and not at the end; "
            "and the directory is a new temporary one."
        },
    ),
    Program(
        "arena",
        "kubeflow/arena",
        ("examples/tensorflow/mnist/main.py",),
        "a17d7049ef3ea9da",
        "2.15",
        ARENA,
    ),
    Program(
        "ray_quick_start",
        "ray-project/ray",
        ("python/ray/train/examples/tf/tensorflow_quick_start.py",),
        "76027a40c092221d",
        "2.15",
        "030da48bae263accfc12c353a86a093a80fad2e3",
        starts=("ray_worker.py",),
    ),
    Program(
        "ncf",
        "tensorflow/models",
        ("official/recommendation/ncf_keras_main.py",),
        "0b0eb977f4c1cab4",
        "2.15",
        release="tf-models-official==2.15.0",
        found=dict.fromkeys(
            ("test_a_chief_job_is_chief", "test_no_two_workers_write_one_path"),
            "All workers save their checkpoint to one path. In one of the clusters the chief ended "
            "by an error, since its part of the checkpoint was gone.",
        ),
    ),
)
BY_NAME = {row.name: row for row in PROGRAMS}


# --- fetch and place -----------------------------------------------------------------------------


def place(row: Program, directory: Path, checkouts: Path | None) -> list[Path]:
    """Put a program and its descriptions into a new directory; return the descriptions.

    `checkouts`: has a Git repository OWNER/NAME of each program, and wheels of releases; without
    it, and for what it lacks, they are fetched.
    """
    directory.mkdir(parents=True)
    if row.release:
        wheel = _wheel(row, directory, checkouts)
        _hold(row, wheel.read_bytes())
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(directory)
    else:
        repository = _repository(row, directory.parent / "fetched", checkouts)
        texts = [_git(repository, "show", f"{row.commit}:{path}") for path in row.files]
        _hold(row, b"".join(texts))
        for path, text in zip(row.files, texts, strict=True):
            for name, own in _written(path, text).items():
                (directory / name).write_bytes(own)
    for path in (*row.descriptions, *(DESCRIPTIONS / name for name in row.starts)):
        shutil.copy(path, directory)
    return [directory / path.name for path in row.descriptions]


def _written(path: str, text: bytes) -> dict[str, bytes]:
    """Return file name -> content: the file, or what the cells of a notebook write."""
    if not path.endswith(".ipynb"):
        return {Path(path).name: text}
    cells = ["".join(cell["source"]) for cell in json.loads(text)["cells"]]
    parts = [cell.partition("\n") for cell in cells if cell.startswith("%%writefile ")]
    return {head.split()[1]: f"{body}\n".encode() for head, _, body in parts}


def _hold(row: Program, content: bytes) -> None:
    found = hashlib.sha256(content).hexdigest()[: len(row.digest)]
    if found != row.digest:
        raise BadInput(f"{row.name}: digest {found}, not {row.digest}; this is another program")


def _repository(row: Program, fetched: Path, checkouts: Path | None) -> Path:
    if checkouts and (checkouts / row.repository).is_dir():
        return checkouts / row.repository
    target = fetched / row.repository
    _run("git", "init", "--quiet", "--bare", str(target))
    _git(target, "fetch", "--quiet", "--depth=1", f"{HOSTED}/{row.repository}", row.commit)
    return target


def _wheel(row: Program, directory: Path, checkouts: Path | None) -> Path:
    pattern = row.release.replace("-", "_").replace("==", "-") + "-*.whl"
    for path in checkouts.glob(pattern) if checkouts else ():
        return path
    command = ("-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(directory))
    _run(sys.executable, *command, row.release)
    return next(directory.glob(pattern))


def _git(repository: Path, *arguments: str) -> bytes:
    return _run("git", "-C", str(repository), *arguments)


def _run(*command: str) -> bytes:
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise BadInput(f"{' '.join(command)}: {lines[-1] if lines else 'failed'}")
    return done.stdout


def home(directory: Path, data: Path) -> Path:
    """Return a new home directory with MNIST where Keras looks for it."""
    cache = directory / ".keras" / "datasets"
    cache.mkdir(parents=True)
    shutil.copy(data, cache / "mnist.npz")
    return directory


# --- results -------------------------------------------------------------------------------------

RED = (FAILED, HARNESS_ERROR)
COLUMNS = (
    Column("from"),
    Column("approach"),
    Column("TensorFlow"),
    Column("level", right=True),
    Column("passed", right=True),
    Column("failed", right=True),
    Column("known deviations", right=True),
    Column("not examined", right=True),
)
NOTE = (
    "level: what the suite knows of the program. known deviations: with what TensorFlow itself "
    "is known to do otherwise, or cannot do on the machine."
)


@dataclass(frozen=True)
class Examined:
    """A program at one level, as recorded."""

    row: Program
    level: str
    approach: str
    tensorflow: str
    verdicts: Counter[str]
    failed: frozenset[str]
    not_examined: int

    def count(self, *verdicts: str) -> str:
        return str(sum(self.verdicts[name] for name in verdicts))


def examined(runs: Iterable[RunFrames]) -> list[Examined]:
    """Return what the runs say of each program and level, in the order of PROGRAMS."""
    found = []
    for run in runs:
        verdicts = run.verdicts.to_dict("records")
        for entry in run.info.get("programs", ()):
            name, _, level = entry["name"].rpartition("_")
            if name not in BY_NAME:
                continue
            own = [row for row in verdicts if row["trainer"] == entry["name"]]
            left = [one for one in run.info["not_examined"] if one["trainer"] == entry["name"]]
            found.append(
                Examined(
                    BY_NAME[name],
                    level,
                    entry["approach"],
                    run.info["versions"]["tensorflow"],
                    Counter(row["verdict"] for row in own),
                    frozenset(_test(row) for row in own if row["verdict"] in RED),
                    len(left),
                )
            )
    if not found:
        raise BadInput("the runs have no public programs; measure with run-public")
    order = list(BY_NAME)
    return sorted(found, key=lambda one: (order.index(one.row.name), one.level))


def _test(verdict: Mapping[str, Any]) -> str:
    return re.sub(r"\[.*", "", verdict["test"].split("::")[-1])


def table(runs: Iterable[RunFrames]) -> Table:
    """Return a row for each program and level of the runs."""
    rows = [
        Row(
            one.row.name,
            (
                one.row.origin,
                one.approach,
                one.tensorflow,
                one.level,
                one.count(PASSED),
                one.count(*RED),
                one.count(KNOWN_DEVIATION, UNSUPPORTED),
                str(one.not_examined),
            ),
        )
        for one in examined(runs)
    ]
    return Table("", COLUMNS, tuple(rows), NOTE)


def findings(runs: Iterable[RunFrames]) -> Table:
    """Return what was found in each program, with the tests that failed and their levels."""
    failed: dict[str, dict[str, list[str]]] = {}
    for one in examined(runs):
        own = failed.setdefault(one.row.name, {})
        for test in sorted(one.failed):
            own.setdefault(test, []).append(one.level)
    rows = []
    for name, own in failed.items():
        found = BY_NAME[name].found
        for what in dict.fromkeys(found.values()):
            tests = [test for test in own if found.get(test) == what]
            levels = sorted({level for test in tests for level in own[test]})
            if tests:
                rows.append(Row(name, (what, ", ".join(tests), ", ".join(levels))))
    columns = (Column("found"), Column("test that fails"), Column("levels"))
    return Table("", columns, tuple(rows), "levels: those at which the test fails.")


def deviations(runs: Iterable[RunFrames]) -> list[str]:
    """Return in a line each what differs from the rows of PROGRAMS."""
    failed: dict[str, set[str]] = {}
    for one in examined(runs):
        failed.setdefault(one.row.name, set()).update(one.failed)
    lines = []
    for name, tests in failed.items():
        known = BY_NAME[name].found.keys()
        lines += [f"{name}: {test} fails" for test in sorted(tests - known)]
        lines += [f"{name}: {test} does not fail" for test in sorted(known - tests)]
    return lines


def chosen(names: Sequence[str], tensorflow: str) -> list[Program]:
    """Return the programs of these names; without names, those of this version of TensorFlow."""
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        raise BadInput(f"no public program {unknown[0]!r}; known: {', '.join(BY_NAME)}")
    return [
        row
        for row in PROGRAMS
        if (row.name in names if names else tensorflow.startswith(f"{row.tensorflow}."))
    ]
