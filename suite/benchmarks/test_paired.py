"""Interleaved comparison of two TensorFlows, backends, trainers, or of one side with itself.

`--base` selects the base side. `python -m reports ab` runs this test and judges its measurements.
The test itself only asserts that it had something to measure. Rows of one side and pair are in the
order of the turns.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from suite.harness.ab import interleaved
from suite.harness.ab.sides import Side, base_of, interpreter_of, with_paths, with_variables
from suite.harness.core.case import Case
from suite.harness.metrics import step_counts
from suite.harness.session.session import Launch, Session


@pytest.mark.cases(level="observed")
@pytest.mark.timing
@pytest.mark.paired
def test_paired(case: Case, launch: Launch, session: Session, record, time: int) -> None:
    from reports.ab import pairs, ratios  # imports SciPy, so only measuring tests wait for it

    settings = session.settings
    assert settings.base is not None, f"comparison {time} of nothing"
    slower = f"{100 * settings.slow_down:g} % slower" if settings.slow_down else ""
    injected = {"base": "", "new": slower}
    interpreter = session.interpreter
    base = base_of(settings.base, case, interpreter_of(settings.base, interpreter), interpreter)
    both = with_paths(base, Side("new", case, interpreter), settings)
    sides = tuple(with_variables(side, settings) for side in both)
    again = (replace(sides[0], name="control"),) if settings.control else ()
    with interleaved.launches(launch, (*sides, *again)) as launches:
        control = (launches[0], launches[2]) if again else ()
        for number, pair in enumerate(
            interleaved.measure(launches[:2], settings.budget_s, settings.slow_down, control)
        ):
            if pair.control is not None:
                value = ratios.center(pair.control)
                record(pairs.CONTROL, value, "1", "none", repeat=number)
            for side in sides:
                columns = {
                    "variant": side.name,
                    "repeat": number,
                    "trainer": side.trainer,
                    "backend": side.case.backend,
                    "collective": pair.collective[side.name],
                    "workers": pair.workers[side.name],
                    "fault": ", ".join(filter(None, (side.assignments, injected[side.name]))),
                    **side.versions,
                }
                for time_s in pair.times_s[side.name]:
                    record("paired_step_time_s", time_s, "s", "lower", **columns)
                for metric, value in pair.counts[side.name].items():
                    unit = step_counts.UNITS[metric]
                    record(f"paired_{metric}", value, unit, "none", **columns)
                record("paired_start_up_s", pair.start_up_s[side.name], "s", "none", **columns)
            record("paired_timed_s", pair.timed_s, "s", "none", repeat=number)
            for name, share in (("steal", pair.steal), ("foreign", pair.foreign)):
                record(f"paired_{name}_share", share, "1", repeat=number)
