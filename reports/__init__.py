"""Reads the run directories that `pytest suite/` leaves behind and turns them into reports.

Knows nothing of TensorFlow and nothing of the suite: a run directory is all it reads, so that a
run made elsewhere, or by another engine, reports the same.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """Import `reports.frame`, the reader for other programs, on first use: pandas is slow."""
    if name == "frame":
        from reports.rundir import frame

        return frame
    raise AttributeError(f"module 'reports' has no attribute {name!r}")
