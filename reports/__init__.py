"""Reports on the run directories that `pytest suite/` writes.

This package depends neither on TensorFlow nor on the suite: it only reads run directories. A run
made on another machine, or by another engine, gives the same report.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """Import `reports.frame`, the reader for other programs, on first use: pandas is slow."""
    if name == "frame":
        from reports.rundir import frame

        return frame
    raise AttributeError(f"module 'reports' has no attribute {name!r}")
