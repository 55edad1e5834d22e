"""Create the directory of a run, and point `latest` at the newest complete run."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path

from suite.harness.core.errors import BadInput
from suite.harness.core.paths import ROOT


def point_latest_at(directory: Path) -> None:
    """Point the link `latest`, next to the run directory, at this run."""
    link = directory.parent / "latest"
    part = directory.parent / f".latest.{os.getpid()}"
    part.unlink(missing_ok=True)
    part.symlink_to(directory.name)
    part.replace(link)


RUNS = ROOT / "reports" / "runs"


def run_directory(wanted: str | None) -> Path:
    """Create the run's directory; raise BadInput if it is not empty or not writable."""
    name = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S") + f"-{os.getpid()}"
    directory = (Path(wanted) if wanted else RUNS / name).resolve()
    probe = directory / ".writable"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise BadInput(f"--run-dir {directory}: is not empty; give a new or an empty directory")
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise BadInput(f"--run-dir {directory}: cannot be written: {error.strerror}") from error
    return directory
