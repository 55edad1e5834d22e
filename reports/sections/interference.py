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
    Column("max steal %", right=True),
    Column("max other processes %", right=True),
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
    tests = without_lock(run)
    for metric, most in MOST.items():
        shares = _of(run, metric)
        tests |= set(shares.loc[shares["value"] > most, "test"])
    return sorted(tests)


def without_lock(run: RunFrames) -> set[str]:
    """Return the tests that timed without the machine's lock; none in runs from before the lock."""
    locks = _of(run, LOCK)
    return set(locks.loc[locks["value"] == 0, "test"])


def table(run: RunFrames) -> Table:
    """Return one line; no rows if the run timed no test."""
    steal, foreign, mhz = (_of(run, metric) for metric in (STEAL, FOREIGN, FREQUENCY))
    if steal.empty:
        return Table("CPU interference", COLUMNS, (), "No test of this run was timed.")
    noisy_tests, machine = noisy(run), run.info["machine"]
    cells = (
        str(steal["test"].nunique()),
        str(len(noisy_tests)),
        figure(100 * steal["value"].max()),
        MISSING if foreign.empty else figure(100 * foreign["value"].max()),
        f"{mhz['value'].min():.0f} to {mhz['value'].max():.0f}" if len(mhz) else "not recorded",
        figure(machine.get("load_1m")),
    )
    most = " % of the CPU time, or other processes more than ".join(
        f"{100 * share:.0f}" for share in MOST.values()
    )
    sentences = [f"noisy: tests during which the hypervisor took more than {most} %."]
    if noisy_tests:
        more = (
            f" and {plural(len(noisy_tests) - NAMED, 'other')}" if len(noisy_tests) > NAMED else ""
        )
        sentences.append(f"Noisy: {', '.join(noisy_tests[:NAMED])}{more}.")
    if others := len(without_lock(run)):
        sentences.append(
            f"{plural(others, 'test')} timed without the timing lock, since another run of the "
            "suite held it."
        )
    if (machine.get("load_1m") or 0.0) > BUSY * (machine.get("cores") or 1):
        sentences.append("The machine was busy before the run: all its timings are doubtful.")
    return Table("CPU interference", COLUMNS, (Row("", cells),), " ".join(sentences))


def warning(run: RunFrames) -> Table:
    """Return the table if the numbers are doubtful, else the same table without rows."""
    full = table(run)
    if noisy(run) or "doubtful" in full.note:
        return full
    return Table(full.title, full.columns, (), full.note)
