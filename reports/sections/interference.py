"""CPU interference (steal, other processes) while a run timed its tests, to flag noisy runs."""

from __future__ import annotations

import pandas as pd

from reports.ab.pairs import NOISE
from reports.core.table import Column, Row, Table
from reports.core.text import MISSING, figure, plural
from reports.rundir.frame import RunFrames

STEAL, FOREIGN, FREQUENCY = "machine_steal_share", "machine_foreign_share", "machine_mhz"
LOCK = "machine_lock_acquired"  # 0: other runs of the suite may have been timing
METRICS = (STEAL, FOREIGN, FREQUENCY, LOCK)
MOST = {STEAL: NOISE["paired_steal_share"], FOREIGN: NOISE["paired_foreign_share"]}
BUSY = 0.5  # load per processor before the run; above it other processes were active
NAMED = 5  # noisy tests that the note names
COLUMNS = (
    Column("timed tests", right=True),
    Column("noisy", right=True),
    Column("most stolen %", right=True),
    Column("most foreign %", right=True),
    Column("MHz"),
    Column("load before", right=True),
)


def rows(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements that this section shows."""
    return measurements.loc[measurements["metric"].isin(METRICS)]


def _of(run: RunFrames, metric: str) -> pd.DataFrame:
    return run.measurements.loc[run.measurements["metric"] == metric]


def noisy(run: RunFrames) -> list[str]:
    """Return the tests whose steal or foreign CPU share exceeded the limit in MOST.

    Tests that timed without the machine's timing lock are included.
    """
    found = beside(run)
    for metric, most in MOST.items():
        taken = _of(run, metric)
        found |= set(taken.loc[taken["value"] > most, "test"])
    return sorted(found)


def beside(run: RunFrames) -> set[str]:
    """Return the tests that timed without the machine's lock; none in runs from before the lock."""
    locks = _of(run, LOCK)
    return set(locks.loc[locks["value"] == 0, "test"])


def table(run: RunFrames) -> Table:
    """Return one line; no rows if the run timed no test."""
    stolen, foreign, mhz = (_of(run, metric) for metric in (STEAL, FOREIGN, FREQUENCY))
    if stolen.empty:
        return Table("Machine while timing", COLUMNS, (), "Nothing was timed in this run.")
    found, machine = noisy(run), run.info["machine"]
    cells = (
        str(stolen["test"].nunique()),
        str(len(found)),
        figure(100 * stolen["value"].max()),
        MISSING if foreign.empty else figure(100 * foreign["value"].max()),
        f"{mhz['value'].min():.0f} to {mhz['value'].max():.0f}" if len(mhz) else "not told",
        figure(machine.get("load_1m")),
    )
    most = " %, or other processes more than ".join(f"{100 * share:.0f}" for share in MOST.values())
    told = [f"noisy: the hypervisor took more than {most} % of the processors' time."]
    if found:
        more = f" and {plural(len(found) - NAMED, 'other')}" if len(found) > NAMED else ""
        told.append(f"Of these: {', '.join(found[:NAMED])}{more}.")
    if others := len(beside(run)):
        told.append(
            f"{plural(others, 'test')} timed without the machine's lock on timing: another run of "
            "the suite was timing."
        )
    if (machine.get("load_1m") or 0.0) > BUSY * (machine.get("cores") or 1):
        told.append("Others were at work when the run began: all its timings are doubtful.")
    return Table("Machine while timing", COLUMNS, (Row("", cells),), " ".join(told))


def warning(run: RunFrames) -> Table:
    """Return the table if the numbers are doubtful, else the same table without rows."""
    shown = table(run)
    if noisy(run) or "doubtful" in shown.note:
        return shown
    return Table(shown.title, shown.columns, (), shown.note)
