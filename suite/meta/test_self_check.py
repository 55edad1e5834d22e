"""Self-check in seconds: clusters form, faults arrive, and checks find defects here.

`pytest suite/` runs this file of suite/meta and no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from suite.harness.cluster.launcher import Engine
from suite.meta import fakes
from suite.meta.groups import BY_NAME, LIMIT_S, RED, Stage, judge, judge_all

# A check of a fault-free run, of a restarted cluster and of a fault with parameter servers.
CHECKS = ("workers_agree_on_weights", "final_weights_equal_uninterrupted", "training_resumes")


@pytest.fixture(scope="module")
def stage(fake_engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("self-check")
    engine = fakes.toy_engine(fake_engine, directory, LIMIT_S)
    with ThreadPoolExecutor(2) as pool:
        stage = Stage(engine, directory, pool)
        for check in CHECKS:
            group, defect = RED[check]
            stage.run(group)
            stage.run(group, defect)
        yield stage
    engine.stop()


@pytest.mark.parametrize("check", CHECKS)
def test_check_is_green_without_the_defect_and_red_with_it(stage: Stage, check: str) -> None:
    group, defect = RED[check]
    assert judge_all(BY_NAME[group], stage.run(group).result()) == {}
    assert judge(check, stage.run(group, defect).result())
