"""Make what the sides name: virtual environments, kept between calls, and files of a commit."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from filelock import FileLock

from reports.core.text import one_line
from reports.rundir.frame import BadInput
from reports.upgrade.sides import Side

STAMP = "made-of.json"  # in a complete environment: what it was made of
# Variables that pip obeys and that concern another environment.
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
CONFLICT = "The conflict is caused by:"  # of pip, before lines that are indented


class NotInstalled(BadInput):
    """An environment cannot be made. `reason`: pip's, in one line."""

    def __init__(self, side: Side, reason: str) -> None:
        super().__init__(f"--{side.name} {side.text}: cannot be installed: {reason}")
        self.reason = reason


def cache() -> Path:
    """Return the directory of the environments, below XDG_CACHE_HOME."""
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "tf-distribute-conformance" / "environments"


def python_of(side: Side, directory: Path, again: bool = False) -> str:
    """Return the side's interpreter; make its environment in `directory` unless it is there.

    An environment is made of requirements as they are written. One that was made before is used
    as it is, even if a newer release fits the requirement by now; `again` makes it anew.

    Raise NotInstalled with pip's reason if it cannot be made. Nothing is left of it then. Raise
    BadInput if the side's interpreter is no Python.
    """
    interpreter = side.interpreter or sys.executable
    if not side.requirements:
        return interpreter
    made_of = {"interpreter": _identity(side.name, interpreter), "requirements": side.requirements}
    text = json.dumps(made_of, sort_keys=True)
    place = (
        directory / f"{_slug(side.requirements)}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    )
    python = place / "bin" / "python"
    directory.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{place}.lock"):
        if again or not _is_complete(place, text):
            shutil.rmtree(place, ignore_errors=True)
            try:
                _make(side, interpreter, place)
                (place / STAMP).write_text(text)
            except BaseException:
                shutil.rmtree(place, ignore_errors=True)
                raise
    return str(python)


def remove(python: str) -> None:
    """Remove the environment of an interpreter that `python_of` returned."""
    place = Path(python).parent.parent
    if (place / STAMP).is_file():
        shutil.rmtree(place, ignore_errors=True)
        Path(f"{place}.lock").unlink(missing_ok=True)


def _is_complete(place: Path, text: str) -> bool:
    stamp = place / STAMP
    return stamp.is_file() and stamp.read_text() == text and (place / "bin" / "python").exists()


def _make(side: Side, interpreter: str, place: Path) -> None:
    print(f"{side.name}: installing {' '.join(side.requirements)}", file=sys.stderr, flush=True)
    _run(side, [interpreter, "-m", "venv", str(place)])
    pip = [str(place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install"]
    _run(side, [*pip, *side.requirements])


def _run(side: Side, command: Sequence[str]) -> None:
    pipe, same = subprocess.PIPE, subprocess.STDOUT  # pip prints the conflict on stdout
    done = subprocess.run(command, stdout=pipe, stderr=same, text=True, env=_own(), check=False)
    if done.returncode:
        raise NotInstalled(side, _reason(done.stdout))


def _reason(printed: str) -> str:
    """Return the requirements that contradict each other, or pip's last error, in one line."""
    lines = [line for line in printed.splitlines() if line.strip()]
    if CONFLICT in lines:
        after = lines[lines.index(CONFLICT) + 1 :]
        return one_line("; ".join(map(str.strip, takewhile(lambda line: line[0] == " ", after))))
    errors = [line for line in lines if line.startswith("ERROR:")] or lines[-1:]
    return one_line(errors[-1].removeprefix("ERROR:")).strip() if errors else "no message"


def _own() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if name not in FOREIGN}


def _identity(name: str, interpreter: str) -> str:
    """Return path and version of an interpreter; raise BadInput if it is no Python."""
    code = "import sys; print(sys.version.split()[0])"
    try:
        done = subprocess.run(
            [interpreter, "-c", code], capture_output=True, text=True, env=_own(), check=False
        )
    except OSError as error:
        raise BadInput(f"--{name}: {interpreter}: {error.strerror}") from error
    if done.returncode or not re.match(r"\d+\.\d+", done.stdout):
        raise BadInput(f"--{name}: {interpreter}: it is no Python interpreter")
    return f"{os.path.realpath(interpreter)} {done.stdout.strip()}"


def _slug(requirements: Sequence[str]) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", Path(requirements[0]).name.lower()).strip("-.")[:40]


def programs_of(
    sides: Sequence[Side], trainers: Sequence[str], directory: Path
) -> list[str] | None:
    """Return the path of the program for each side, or None if no side names a commit.

    The files of a commit are written below `directory`. A side without a commit has the files as
    they are. Raise BadInput if there is not exactly one program, or no such commit.
    """
    if not any(side.commit for side in sides):
        return None
    word = next(f"git:{side.commit}" for side in sides if side.commit)
    if len(trainers) != 1 or not Path(trainers[0]).is_file():
        raise BadInput(f"{word}: name the one program of which it is a commit: --trainer train.py")
    program = Path(trainers[0]).resolve()
    return [str(_exported(side, program, directory) if side.commit else program) for side in sides]


def _exported(side: Side, program: Path, directory: Path) -> Path:
    """Write the repository's files at the side's commit; return the program's path in them."""

    def git(problem: str, *arguments: str) -> bytes:
        command = ["git", "-C", str(program.parent), *arguments]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            raise BadInput(f"--{side.name} git:{side.commit}: {problem}")
        return done.stdout

    top = git(f"{program} is in no git repository", "rev-parse", "--show-toplevel")
    root = Path(top.decode().strip())
    revision = f"{side.commit}^{{commit}}"
    commit = git(f"no commit of {root}", "rev-parse", "--verify", revision).decode().strip()
    target = directory / f"{side.name}-{commit[:12]}"
    with tempfile.TemporaryFile() as archive:
        files = ("-C", str(root), "archive", "--format=tar", commit)
        archive.write(git("its files cannot be read", *files))
        archive.seek(0)
        with tarfile.open(fileobj=archive) as tar:
            tar.extractall(target, filter="data")
    path = target / program.relative_to(root)
    if not path.is_file():
        raise BadInput(f"--{side.name} git:{side.commit}: it has no {program.relative_to(root)}")
    return path
