"""Collect verdicts and measurements where all reports arrive, for the run directory.

Under pytest-xdist that is the controller: the results of a test travel on its report.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reports.core.verdicts import worst
from suite.harness.core.timestamps import now


@dataclass
class Recorder:
    """Rows of the two tables, in the order in which the tests ended."""

    directory: Path
    start: str = field(default_factory=now)
    load_1m: float = field(default_factory=lambda: round(os.getloadavg()[0], 2))  # before ours
    measurements: list[dict[str, Any]] = field(default_factory=list)
    by_test: dict[str, dict[str, Any]] = field(default_factory=dict)
    not_examined: list[dict[str, str]] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    zygote_restarts: list[str] = field(default_factory=list)

    @property
    def run_id(self) -> str:
        return self.directory.name

    def take(self, found: Mapping[str, Any]) -> None:
        """Add one phase of one test: the worst phase sets the verdict, durations add up.

        A test that could not examine its program has no row.
        """
        if "not_examined" in found:
            self.not_examined.append(found["not_examined"])
            return
        self.measurements += found["measurements"]
        row = self.by_test.setdefault(found["test"], {**found["row"], "duration_s": 0.0})
        row["duration_s"] += found["duration_s"]
        new = found["row"]
        if worst([row["verdict"], new["verdict"]]).name == new["verdict"]:
            row.update({k: v for k, v in new.items() if k != "duration_s"})

    @property
    def verdicts(self) -> list[dict[str, Any]]:
        return list(self.by_test.values())
