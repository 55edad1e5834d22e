"""Defaults for the drift of a run's level from that of another run."""

from __future__ import annotations

# Default standard deviation of a run's level. It is that of step and CPU times over six runs on one
# shared virtual machine within 2.4 hours (`python -m suite.campaigns drift`); that of rates was
# 21 %. On a dedicated machine, --drift or several runs in BASE give a better value.
DRIFT = 0.26
RUNS_ENOUGH = 5  # with fewer runs their estimated spread is less accurate than DRIFT
