"""Programs of users: `--trainer path/to/train.py` or a TOML file becomes a trainer row.

A program that was not written for the suite takes arguments of its own and reports nothing. The
approach is read from the names that its source uses, so that the row gets the cluster, promises and
known deviations of the reference trainer of that approach.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from reference_trainers import BY_NAME, Trainer
from suite.harness.core.backends import BY_NAME as BACKENDS
from suite.harness.core.errors import BadInput
from suite.harness.core.placeholders import flag_names, placeholders
from suite.harness.core.settings import is_path
from suite.harness.core.topology import Topology
from suite.harness.tables.toml_schema import check_keys, did_you_mean, read_toml

# How much is known of a program, from the least:
LEVELS = (
    BLACK_BOX := "black box",  # exits, signals, and what processes leave behind
    OBSERVED := "observed",  # and events that an observer writes
    DECLARED := "declared",  # and a length, a model directory or a seed that the suite sets
    REPORTING := "reporting",  # the program writes the events itself
)
# In place of epochs or steps_per_epoch, if either will do.
LENGTH, LENGTHS = "length", ("epochs", "steps-per-epoch")
# What an argument may name in braces: flags of the suite, by the names of Python.
PLACEHOLDERS = (
    "model_dir",
    "data",
    "epochs",
    "steps_per_epoch",
    "batch_size",
    "global_batch_size",
    "learning_rate",
    "seed",
    "backend",
)
# Events that an observer writes of the suite's own trainers only: it needs their rows of examples,
# a trace of a step or functions of theirs, and a user's program need not write summaries.
OF_OWN_TRAINERS = ("input", "placed", "laid_out", "summary")
# The batch of all workers, which follows from that of each.
WHOLE = {"global_batch_size": "batch_size"}
MAX_MODULES = 200  # local modules whose source is read to recognize the approach
KEYS: Mapping[str, type] = {
    "program": str,
    "module": str,
    "args": list,
    "cluster": dict,
    "approach": str,
    "backend": str,
    "env": dict,
    "deterministic": bool,
    "equivalent": bool,
    "observe": bool,
    "spawn": str,
    "events": list,
}


@dataclass(frozen=True)
class Approach:
    """An approach and the names in a source by which it is recognized.

    `fit` and `loop` name the reference trainers of programs that call `Model.fit`, and of others.
    `makes`: what such a program makes, of STRATEGIES; empty if it may be any of them.
    """

    name: str
    names: tuple[str, ...]
    loop: str
    fit: str = ""
    makes: tuple[str, ...] = ()

    def row(self, uses_fit: bool) -> Trainer:
        return BY_NAME[self.fit if uses_fit and self.fit else self.loop]


# The field `strategy` of the observer's event `joined`.
STRATEGIES = (
    NONE := "",
    MULTI_WORKER := "MultiWorkerMirroredStrategy",
    MIRRORED := "MirroredStrategy",
    PARAMETER_SERVER := "ParameterServerStrategy",
    MESH := "Mesh",
)
# The first row of which a name occurs. An Estimator is given a strategy, so it precedes strategies.
APPROACHES = (
    Approach("estimator", ("train_and_evaluate",), "estimator_multi_worker_mirrored"),
    Approach(
        "ps2",
        ("ParameterServerStrategy", "ParameterServerStrategyV2", "ClusterCoordinator"),
        "coordinator_parameter_server",
        "keras_parameter_server",
        (PARAMETER_SERVER,),
    ),
    Approach(
        "mwms",
        ("MultiWorkerMirroredStrategy", "CollectiveAllReduceStrategy"),
        "custom_loop_multi_worker_mirrored",
        "keras_multi_worker_mirrored",
        (MULTI_WORKER,),
    ),
    Approach(
        "ps1-sync", ("SyncReplicasOptimizer",), "sync_replicas_parameter_server", makes=(NONE,)
    ),
    Approach(
        "ps1",
        ("replica_device_setter", "Supervisor", "MonitoredTrainingSession"),
        "supervisor_parameter_server",
        makes=(NONE,),
    ),
    Approach(
        "dtensor",
        ("DVariable", "create_mesh", "create_distributed_mesh"),
        "dtensor_data_parallel",
        makes=(MESH, NONE),  # a Mesh that the program assembles itself is not seen
    ),
    Approach(
        "mirrored", ("MirroredStrategy",), "custom_loop_mirrored", "keras_mirrored", (MIRRORED,)
    ),
    Approach("single", (), "single_process", makes=(NONE,)),
)
BY_APPROACH = {approach.name: approach for approach in APPROACHES}

# By the names of reference trainers, see `Trainer.like`.
BY_TRAINER = {name: approach for approach in APPROACHES for name in (approach.loop, approach.fit)}
FIT = "fit"
LEGACY_KERAS, TF_KERAS = "TF_USE_LEGACY_KERAS", "tf_keras"
PS_FLAGS = "ps_hosts"  # a program with this flag takes the cluster as host lists


@dataclass(frozen=True)
class Program:
    """A user's program: its row, its file, and why it was taken for that approach."""

    row: Trainer
    file: Path
    approach: str
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Return what run.json records of the program."""
        return {
            "name": self.row.name,
            "file": str(self.file),
            "approach": self.approach,
            "reason": self.reason,
            "level": LEVELS.index(self.row.level),
            "level_name": self.row.level,
            "like": self.row.like,
        }

    def describe(self) -> str:
        """Return one line: the approach with its reason, the level, and how tasks start."""
        level = f"level {LEVELS.index(self.row.level)} ({self.row.level})"
        return f"{self.row.name}: {self.approach}, {self.reason}; {level}; tasks: {self.row.spawn}"


@dataclass(frozen=True)
class Use:
    """A name that a source uses, with its place."""

    name: str
    path: Path
    line: int


@cache
def read(path: Path, spawn: str = "") -> Program:
    """Return the program of a file: Python, a script, or TOML. BadInput, in one line, if unusable.

    `spawn`: how its tasks start, unless the TOML file says so (default: as plain processes, so that
    variables that a program sets before it imports TensorFlow have their effect).
    """
    if not path.is_file():
        what = "a directory" if path.is_dir() else "no such file"
        raise BadInput(f"--trainer {path}: {what}; give a program, or a TOML file that names one")
    values = read_toml(path) if path.suffix == ".toml" else {"program": str(path)}
    where = f"--trainer {path}"
    check_keys(where, values, KEYS, ())
    if ("program" in values) == ("module" in values):
        raise BadInput(f"{where}: name either a program or a module")
    program = _file(where, path, values)
    module = values.get("module", "")
    args = tuple(map(str, values.get("args", ())))
    _check_arguments(where, args)
    root = path.parent.resolve() if module else program.parent
    uses = list(_uses(program, root))
    approach, reason = _approach(where, values, uses)
    row = approach.row(any(use.name == FIT for use in uses))
    is_python = program.suffix == ".py" or any(use.path == program for use in uses)
    is_executable = os.access(program, os.X_OK)
    if not is_python and not is_executable:
        raise BadInput(f"{where}: {program} is neither Python nor executable (chmod +x)")
    if program.suffix != ".py" and is_executable and _names_interpreter(program):
        is_python = False  # that interpreter runs it: of a console script, the one of its venv
    observe = values.get("observe", True) and not values.get("events")
    taken = sorted({name for argument in args for name in placeholders(argument)})
    level = REPORTING if values.get("events") else OBSERVED if observe else BLACK_BOX
    if level == OBSERVED and (taken or values.get("deterministic") or values.get("equivalent")):
        level = DECLARED
    jobs = _jobs(where, values, row)
    backend = values.get("backend", _backend(uses))
    if backend not in BACKENDS:
        raise BadInput(f"{where}: backend must be one of {', '.join(BACKENDS)}, not {backend!r}")
    requested = row.backends if "backend" in taken else (backend,)
    new = replace(
        row,
        name=name_of(path),
        document=str(program),
        jobs=jobs,
        role=_role(row, uses, jobs),
        backends=requested if row.backends != ("none",) else row.backends,
        keras=True,
        flavor=_flavor(values, uses),
        devices=1,
        model="",
        learning_rate=0.0,
        portable=False,
        events=_events(row, values) if level != BLACK_BOX else (),
        flags=flag_names(dict.fromkeys(WHOLE.get(name, name) for name in taken)),
        path=str(program),
        plain=False,
        arguments=args,
        observed=observe,
        level=level,
        deterministic=values.get("deterministic", False),
        equivalent=values.get("equivalent", False),
        like=row.name,
        environment=_environment(where, values, root),
        spawn=values.get("spawn", spawn or "exec") if is_python else "exec",
        python=is_python,
        module=module,
    )
    return Program(new, path, approach.name, reason)


def name_of(path: Path) -> str:
    """Return the name of the program of a file, as reports have it."""
    return re.sub(r"\W", "_", path.stem)


def _file(where: str, path: Path, values: Mapping[str, Any]) -> Path:
    """Return the program's file; a module is looked up below the directory of the TOML file."""
    if "program" in values:
        found = (path.parent / values["program"]).resolve()
    else:
        found = (path.parent / values["module"].replace(".", "/")).resolve()
        found = found.with_suffix(".py") if not found.is_dir() else found / "__main__.py"
    if not found.is_file():
        raise BadInput(f"{where}: there is no file {found}")
    return found


def _check_arguments(where: str, args: Iterable[str]) -> None:
    for argument in args:
        try:
            names = placeholders(argument)
        except ValueError as error:
            raise BadInput(f"{where}: args, {argument!r}: {error}") from error
        for name in names:
            if name not in PLACEHOLDERS:
                near = did_you_mean(name, PLACEHOLDERS) or f"; known: {', '.join(PLACEHOLDERS)}"
                raise BadInput(f"{where}: args, {argument!r}: no placeholder {{{name}}}{near}")


def _uses(program: Path, root: Path) -> Iterator[Use]:
    """Yield the names that a Python program and the local modules that it imports use.

    Of a shell script, the names in the Python programs that it starts. `root`: the directory in
    which the program finds its modules.
    """
    queue, seen = [program], {program}
    while queue and len(seen) <= MAX_MODULES:
        path = queue.pop(0)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError):
            continue  # no text
        tree = _parse(text)
        if tree is None:
            found = _started(text, path.parent)
        else:
            nodes = list(ast.walk(tree))
            found = (module for node in nodes for module in _imported(node, path, root))
            for node in nodes:
                yield from (Use(n, path, getattr(node, "lineno", 1)) for n in _names(node))
        for file in found:
            if file.is_file() and (own := file.resolve()) not in seen:
                seen.add(own)
                queue.append(own)


def _parse(text: str) -> ast.AST | None:
    """Return the syntax tree of a Python program; None for a shell script, or wrong Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _names_interpreter(program: Path) -> bool:
    """Return True if the first line of a script says what runs it."""
    with program.open("rb") as file:
        return file.read(2) == b"#!"


def _started(text: str, directory: Path) -> Iterator[Path]:
    """Yield files that a shell script may start with Python: its words that end in .py, and -m."""
    text = re.sub(r"\$\{?\w+\}?/", "", text)  # the script's directory in a variable
    for name in re.findall(r"[\w.-][\w./-]*\.py\b", text):
        yield directory / name
    for name in re.findall(r"\s-m\s+([\w.]+)", text):
        module = directory / name.replace(".", "/")
        yield from (module.with_suffix(".py"), module / "__main__.py")


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.name for alias in node.names)
        yield getattr(node, "module", None) or ""
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from re.findall(rf"\b(?:{PS_FLAGS}|{LEGACY_KERAS})\b", node.value)


def _imported(node: ast.AST, path: Path, root: Path) -> Iterator[Path]:
    """Yield where imported modules may lie next to the program or the importing file."""
    names: list[str] = []
    bases = [path.parent, root]
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        own = node.module or ""
        names = [own, *(f"{own}.{alias.name}".strip(".") for alias in node.names)]
        if node.level:  # 1: the package of the file, 2: the package around it
            bases = list(path.parents[node.level - 1 : node.level])
    for name in filter(None, names):
        for base in dict.fromkeys(bases):
            module = base / name.replace(".", "/")
            yield from (module.with_suffix(".py"), module / "__init__.py")


def _approach(where: str, values: Mapping[str, Any], uses: list[Use]) -> tuple[Approach, str]:
    """Return the approach and the reason for it."""
    if "approach" in values:
        named = values["approach"]
        if named not in BY_APPROACH:
            near = did_you_mean(named, BY_APPROACH) or f"; choose from {', '.join(BY_APPROACH)}"
            raise BadInput(f"{where}: no approach {named!r}{near}")
        return BY_APPROACH[named], "as declared"
    for approach in APPROACHES:
        for use in uses:
            if use.name in approach.names:
                reason = f"since line {use.line} of {use.path.name} uses {use.name}"
                return approach, reason + _others(approach, uses)
    if "cluster" in values:
        raise BadInput(
            f"{where}: the source uses no strategy by name; say approach = one of "
            f"{', '.join(BY_APPROACH)}"
        )
    return BY_APPROACH["single"], "since the source uses no strategy by name"


def _others(approach: Approach, uses: list[Use]) -> str:
    """Return what to say if the program makes another strategy that its source names, or ""."""
    named = {use.name for use in uses}
    if NONE in approach.makes or not approach.makes:
        return ""  # a program for TensorFlow 1, or an Estimator, which is given a strategy
    others = [
        f'approach = "{other.name}" if it makes {other.makes[0]}'
        for other in APPROACHES
        if other is not approach and other.makes and named & set(other.names) & set(other.makes)
    ]
    return f"; say {', or '.join(others)}" if others else ""


def _backend(uses: Iterable[Use]) -> str:
    """Return the communication implementation that the source names, else auto."""
    named = {use.name.lower() for use in uses if use.name in ("RING", "NCCL")}
    return named.pop() if len(named) == 1 else "auto"


def _jobs(where: str, values: Mapping[str, Any], row: Trainer) -> tuple[tuple[str, int], ...]:
    if "cluster" not in values:
        return row.jobs
    jobs = tuple(values["cluster"].items())
    for job, count in jobs:
        if type(count) is not int:
            raise BadInput(f"{where}: cluster, {job}: a number of tasks, not {count!r}")
    try:
        Topology(jobs)
    except BadInput as error:
        raise BadInput(f"{where}: cluster: {error}") from error
    return jobs


def _role(row: Trainer, uses: Iterable[Use], jobs: tuple[tuple[str, int], ...]) -> str:
    """Return how the program learns its role: from host lists if it has such flags."""
    if not jobs:
        return "none"
    if row.role == "host_flags" and not any(use.name == PS_FLAGS for use in uses):
        return "tf_config"
    return "tf_config" if row.role == "none" else row.role


def _flavor(values: Mapping[str, Any], uses: Iterable[Use]) -> str:
    """Return tf_keras if the program, or its environment, chooses that package."""
    chosen = values.get("env", {}).get(LEGACY_KERAS) == "1"
    return TF_KERAS if chosen or any(use.name in (TF_KERAS, LEGACY_KERAS) for use in uses) else ""


def _events(row: Trainer, values: Mapping[str, Any]) -> tuple[str, ...]:
    if values.get("events"):
        return tuple(values["events"])
    return tuple(name for name in row.events if name not in OF_OWN_TRAINERS)


def _environment(where: str, values: Mapping[str, Any], root: Path) -> tuple[tuple[str, str], ...]:
    """Return the variables of the TOML file; a module's directory comes first in PYTHONPATH."""
    given = dict(values.get("env", {}))
    for name, value in given.items():
        if not isinstance(value, str):
            raise BadInput(f"{where}: env, {name}: a string, not {value!r}")
    if values.get("spawn", "exec") not in ("fork", "exec"):
        raise BadInput(f"{where}: spawn must be fork or exec, not {values['spawn']!r}")
    if "module" in values:  # tasks run in a directory of their own, so `-m` would not find it
        paths = (str(root), given.get("PYTHONPATH", ""))
        given["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return tuple(given.items())


def programs(trainers: Iterable[str], spawn: str = "") -> tuple[Program, ...]:
    """Return the programs among the values of --trainer. BadInput if two have one name."""
    found = tuple(read(Path(text), spawn) for text in trainers if is_path(text))
    taken = dict.fromkeys(BY_NAME, "a reference trainer")
    for program in found:
        other = taken.setdefault(program.row.name, str(program.file))
        if other != str(program.file):
            raise BadInput(
                f"--trainer {program.file}: {program.row.name} is also the name of {other}; "
                "rename the file, or describe it in a TOML file of another name"
            )
    return found
