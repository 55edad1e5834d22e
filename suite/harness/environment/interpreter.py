"""The interpreter that runs the tasks: its versions and its Keras flavors.

It may differ from pytest's own (`--python`), and pytest never imports TensorFlow. The interpreter
reports the installed packages, which takes a fraction of the time of an import.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from reference_trainers import TENSORFLOW
from suite.harness.core.errors import BadInput
from suite.harness.core.versions import FLAVORS, NO_KERAS, version_in

ASKED_S = 30.0  # usually a fraction of a second, longer with a cold file cache
SILENT_S = 3.0  # then a message reports the wait

KERAS = ("keras", "keras-nightly")
TF_KERAS = ("tf-keras", "tf-keras-nightly")
OTHERS = ("numpy", "protobuf")

# From this version tf.keras is Keras 3, and TF_USE_LEGACY_KERAS=1 makes it tf_keras. Before it,
# tf.keras is Keras 2, and the variable causes a RecursionError where tf_keras is not installed.
KERAS_3_SINCE = "2.16.0.dev0"

# Runs under the tasks' interpreter: Python 3.8 syntax, standard library only.
ASK = """
import importlib.metadata as metadata, json, platform, sys
found = {}
for kind, names in json.loads(sys.argv[1]).items():
    for name in names:
        try:
            found.setdefault(kind, metadata.version(name))
        except metadata.PackageNotFoundError:
            continue
found["python"] = platform.python_version()
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Interpreter:
    """An interpreter with TensorFlow; the version of a package that is not installed is ""."""

    python: str
    python_version: str
    tensorflow: str
    keras: str = ""
    tf_keras: str = ""
    numpy: str = ""
    protobuf: str = ""

    @property
    def flavors(self) -> dict[str, str]:
        """Return the usable Keras flavors that are installed, with their versions."""
        if not version_in(self.tensorflow, f">={KERAS_3_SINCE}"):
            found = {"keras2": self.keras}
        else:
            keras_3 = self.keras if self.keras and version_in(self.keras, ">=3.0.dev0") else ""
            found = {"tf_keras": self.tf_keras, "keras3": keras_3}
        return {flavor: version for flavor, version in found.items() if version}

    def label(self, flavor: str) -> str:
        """Return the flavor with its version, as in reports: "tf_keras 2.21.0", or "none"."""
        return flavor if flavor == NO_KERAS else f"{flavor} {self.flavors[flavor]}"

    def environment(self, flavor: str) -> dict[str, str]:
        """Return the variables that select the flavor, whatever the inherited environment."""
        variables = {"TF_USE_LEGACY_KERAS": "1" if flavor == "tf_keras" else "0"}
        if flavor == "keras3":
            variables["KERAS_BACKEND"] = "tensorflow"
        return variables

    def choose(self, requested: Sequence[str]) -> tuple[str, ...]:
        """Return the requested flavors, or all; raise BadInput for one that is not available."""
        for flavor in requested:
            if flavor not in FLAVORS:
                raise BadInput(f"--keras {flavor}: unknown; choose from {', '.join(FLAVORS)}")
            if flavor not in self.flavors:
                here = ", ".join(map(self.label, self.flavors)) or "none"
                raise BadInput(
                    f"--keras {flavor}: not with TensorFlow {self.tensorflow} of {self.python}; "
                    f"there is {here}"
                )
        return tuple(flavor for flavor in self.flavors if flavor in requested or not requested)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for another process of the same session."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Interpreter:
        return cls(**values)


def describe(python: str | None = None, scale: float = 1.0) -> Interpreter:
    """Query an interpreter (default: pytest's own); raise BadInput if it is unsuitable.

    `scale` (`--deadline-scale`) scales the time limit for its answer.
    """
    path = _resolve(python) if python is not None else sys.executable
    found = _ask(path, ASKED_S * max(1.0, scale))
    if "tensorflow" not in found:
        own = path == sys.executable
        hint = ": pip install -e '.[tensorflow]', or name another with --python" if own else ""
        raise BadInput(f"{path} has no TensorFlow{hint}")
    return Interpreter(
        python=path,
        python_version=found["python"],
        tensorflow=found["tensorflow"],
        keras=found.get("keras", ""),
        tf_keras=found.get("tf_keras", ""),
        numpy=found.get("numpy", ""),
        protobuf=found.get("protobuf", ""),
    )


def _resolve(python: str) -> str:
    """Return an absolute path without resolving links: a venv's python is a link out of it."""
    found = shutil.which(python)
    if found is None:
        what = "no such program"
        if os.path.isdir(python):
            what = "a directory, not a program"
        elif os.path.exists(python):
            what = "not executable"
        raise BadInput(f"--python {python}: {what}; give a Python interpreter with TensorFlow")
    return os.path.abspath(found)


def _ask(path: str, within_s: float) -> Mapping[str, str]:
    kinds: dict[str, Sequence[str]] = {name: (name,) for name in OTHERS}
    kinds |= {"tensorflow": TENSORFLOW, "keras": KERAS, "tf_keras": TF_KERAS}
    try:
        return dict(json.loads(_answer([path, "-c", ASK, json.dumps(kinds)], within_s)))
    except subprocess.TimeoutExpired as error:
        limit = f"{within_s:g} s (--deadline-scale stretches that)"
        raise BadInput(f"{path} did not say which packages it has within {limit}") from error
    except (OSError, ValueError, TypeError, IndexError, RecursionError) as error:
        raise BadInput(f"{path} is not a Python interpreter of 3.8 or later") from error


def _answer(command: Sequence[str], within_s: float) -> str:
    """Return the last line that a command prints, and kill its process group."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # so that its children end with it
    )
    try:
        try:
            said, _ = process.communicate(timeout=min(SILENT_S, within_s))
        except subprocess.TimeoutExpired:
            left_s = max(0.0, within_s - SILENT_S)
            notice = f"asking {command[0]} which packages it has (up to {left_s:g} s more)"
            print(notice, file=sys.stderr, flush=True)
            said, _ = process.communicate(timeout=left_s)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return said.decode().splitlines()[-1]
