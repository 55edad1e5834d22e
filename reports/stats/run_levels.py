"""How far the level of one run lies from that of another, where nothing better is known."""

from __future__ import annotations

# Standard deviation of a run's level, where nothing better is known: that of step and CPU times
# over six runs on one shared virtual machine within 2.4 hours, in reports/evidence/drift; of rates
# it was 21 %. On a machine of one's own --drift, or several runs in BASE, say better.
DRIFT = 0.26


RUNS_ENOUGH = 5  # fewer know their spread so badly that the constant above tells more
