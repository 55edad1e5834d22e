"""Where a run's time went: clusters by scenario, and what they waited for."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from reports.core.table import Column, Row, Table
from reports.core.text import figure, plural
from reports.rundir import phases
from reports.rundir.frame import RunFrames
from reports.rundir.phases import PHASES, Cluster

MOST = 20  # scenarios in the table; the rest is one line
COLUMNS = (
    Column("scenario"),
    Column("clusters", right=True),
    Column("seconds", right=True),
    *(Column(f"{phase} %", right=True) for phase in PHASES),
)
NOTE = "Seconds of all clusters of a scenario together. " + " ".join(
    f"{phase}: {text}." for phase, text in PHASES.items()
)


def table(run: RunFrames) -> Table:
    """Return a line for each scenario, the longest first; no rows without event files."""
    clusters = phases.of_run(run.directory)
    if not clusters:
        return Table("Where the time went", COLUMNS, (), "The run has no event files.")
    counts: Counter[str] = Counter()
    by_scenario: dict[str, Counter[str]] = defaultdict(Counter)
    for cluster in clusters:
        counts[cluster.scenario] += 1
        by_scenario[cluster.scenario].update(cluster.seconds())
    ordered = sorted(by_scenario, key=lambda name: -by_scenario[name].total())
    lines = [_row(name, counts[name], by_scenario[name]) for name in ordered[:MOST]]
    if others := ordered[MOST:]:
        together = sum((by_scenario[name] for name in others), Counter())
        number = sum(counts[name] for name in others)
        lines.append(_row(plural(len(others), "other scenario"), number, together))
    note = f"{_summary(clusters)} {NOTE}"
    return Table("Where the time went", COLUMNS, tuple(lines), note).without_empty_columns()


def _row(name: str, count: int, seconds: Counter[str]) -> Row:
    total = seconds.total()
    shares = (f"{100 * seconds[phase] / total:.0f}" if seconds[phase] else "" for phase in PHASES)
    return Row("", (name, f"{count:,}", figure(total), *shares))


def _summary(clusters: Sequence[Cluster]) -> str:
    total_s = sum(cluster.end_s - cluster.begin_s for cluster in clusters)
    busy_s = phases.busy_s(clusters)
    idle_s = max(cluster.end_s for cluster in clusters) - clusters[0].begin_s - busy_s
    return (
        f"{plural(len(clusters), 'cluster')}, {total_s / busy_s:.1f} at a time on average, "
        f"no cluster existed for {figure(max(0.0, idle_s))} s in between."
    )
