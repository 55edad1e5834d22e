"""Tests of paired comparisons on fakes: turns, the effect of a slowdown, comparable sides."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reference_trainers import BY_NAME, TRAINERS
from suite.harness.ab import interleaved, sides
from suite.harness.ab.interleaved import Pair
from suite.harness.cluster.launch_spec import Plan
from suite.harness.cluster.launcher import MALLOC
from suite.harness.core.case import Case
from suite.harness.core.errors import BadInput, HarnessError, TrainerFailed
from suite.harness.core.paths import ROOT
from suite.harness.core.settings import Settings
from suite.harness.core.topology import Topology
from suite.harness.environment.interpreter import Interpreter
from suite.harness.pytest_plugin import parametrization as cases
from suite.harness.scenarios import base as staging
from suite.harness.session.session import Launch, Session
from suite.meta.fakes import LOOP, SINGLE, FakeCase, data_file
from suite.programs import paired_trainer
from suite.programs.paired_trainer import settled
from suite.programs.turns import Turns

HERE = Interpreter(sys.executable, "3.11", "2.21.0", keras="3.15", tf_keras="2.21.0")
ALONE = Case(BY_NAME["single_process"], "none", "tf_keras")
SUPERVISOR = Case(BY_NAME["supervisor_parameter_server"], "none", "none")


def take_turns(path: Path, firsts: int, seconds: int) -> tuple[str, dict[str, float]]:
    """Return the order of two sides' turns, and the time that each last heard from the other."""
    had: list[str] = []
    heard: dict[str, float] = {}

    def take(name: str, first: bool) -> None:
        turns = Turns(str(path), first)
        for _ in range(firsts if first else seconds):
            turns.next(1.5 if first else 2.5)
            had.append(name)
        heard[name] = turns.heard
        turns.leave()

    first = threading.Thread(target=take, args=("a", True))
    first.start()
    take("b", False)
    first.join()
    return "".join(had), heard


# A side that has left reports no time.
@pytest.mark.parametrize(
    ("count", "order", "heard"),
    [(1, "ab", (0.0, 0.0)), (2, "abba", (0.0, 1.5)), (5, "abbaabbaab", (2.5, 1.5))],
)
def test_two_take_turns_as_abba(tmp_path: Path, count: int, order: str, heard: tuple[float, float]):
    times_s = dict(zip("ab", heard, strict=True))
    assert take_turns(tmp_path / "turn", count, count) == (order, times_s)


@pytest.mark.parametrize(("counts", "order"), [((1, 3), "abbb"), ((4, 1), "abaaa")])
def test_side_that_left_keeps_no_side_waiting(tmp_path: Path, counts: tuple[int, int], order: str):
    assert take_turns(tmp_path / "turn", *counts)[0] == order


def test_failing_side_is_reported_and_not_its_waiting_peer(fake_engine, tmp_path: Path):
    base, new = sides_of(fake_engine, tmp_path, SINGLE)
    broken = replace(new, trainer=replace(SINGLE, path=str(tmp_path / "missing.py")))
    for both in ([base, broken], [broken, base]):
        began_s = time.monotonic()
        with pytest.raises(TrainerFailed, match=r"worker/0 ended before `timed`.*missing\.py"):
            interleaved.measured(both, 0, 0.0, turns=2)
        assert time.monotonic() - began_s < fake_engine.deadlines.run_s / 2


def test_warm_up_ends_when_steps_no_longer_become_faster():
    falling = list(np.linspace(2.0, 1.0, 25))
    assert not settled(falling[:9])
    assert not settled(falling)
    assert settled(falling + [1.0] * 20)


class Left(Exception):
    """Raised on leaving, where a real side would wait to be ended."""


class MadeUpTurns:
    """Turns that are granted at once."""

    taken = 0
    heard = 0.5  # seconds of the other's step

    def next(self, _: float) -> None:
        self.taken += 1

    def leave(self) -> None:
        raise Left


def test_long_steps_have_fewer_turns_with_equal_steps(
    monkeypatch,
):
    monkeypatch.setattr(paired_trainer, "settled", lambda _: True)
    clock = SimpleNamespace(perf_counter=itertools.count().__next__, process_time=lambda: 0.0)
    monkeypatch.setattr(paired_trainer, "time", clock)
    turns, calls, steps = MadeUpTurns(), [], []

    def write(name: str, **fields: Any) -> None:
        calls.append(name)
        steps.append(fields["steps"])

    events = SimpleNamespace(flush=lambda: calls.append("flush"), write=write)
    lead = paired_trainer.Lead(turns, count=40, least=5, turn_s=3.0, slow_down=0.0)

    def train() -> None:
        while True:
            lead.ticked(events, 1)

    with pytest.raises(Left):
        train()
    # A step takes two or three seconds on a clock that advances at each reading.
    assert calls == ["warm", "flush", *["flush", "timed"] * (turns.taken - 1)]
    assert steps[1:] == [6] * (turns.taken - 1)  # as many as the other side's, which is quicker
    assert turns.taken == 1 + 10  # of 13 s, in the time of 40 of 3 s


def sides_of(engine, directory: Path, trainer) -> list[FakeCase]:
    engine, found = replace(engine, defaults={"data": data_file(directory)}), []
    for name in ("base", "new"):
        (directory / name).mkdir()
        found.append(FakeCase(engine, directory / name, trainer))
    return found


def test_a_slowdown_is_in_the_ratio(fake_engine, tmp_path: Path):
    sides, turns = sides_of(fake_engine, tmp_path, SINGLE), interleaved.LEAST_TURNS
    found = interleaved.measured(sides, 1, slow_down=4.0, turns=turns)
    assert [len(found.times_s[name]) for name in ("base", "new")] == [turns, turns]
    # A fake's step is so short that a busy machine may stretch it on either side.
    assert np.median(found.log_ratios) > np.log(1 + 4.0 / 3)
    assert min(found.start_up_s.values()) > 0


def test_each_step_is_slowed_down_by_its_share(monkeypatch):
    class Clock:
        now_s = 0.0

        def perf_counter(self) -> float:
            self.now_s += 1e-4
            return self.now_s

        process_time = perf_counter

    clock, took = Clock(), []
    monkeypatch.setattr(paired_trainer, "time", clock)
    events = SimpleNamespace(flush=lambda: None, write=lambda *_, **__: None)
    lead = paired_trainer.Lead(MadeUpTurns(), count=999, least=5, turn_s=3.0, slow_down=0.1)
    for step_s in (1.0, 2.0) * 20:
        began_s = clock.now_s
        clock.now_s += step_s
        lead.ticked(events, 1)
        took.append((clock.now_s - began_s) / step_s)
    assert lead.warm
    assert took[1:] == pytest.approx([1.1] * 39, abs=2e-3)


def test_warm_up_is_bounded_in_seconds_for_any_event(monkeypatch):
    now_s = 1.0
    clock = SimpleNamespace(perf_counter=lambda: now_s, process_time=lambda: 0.0)
    monkeypatch.setattr(paired_trainer, "time", clock)
    monkeypatch.setattr(paired_trainer, "settled", lambda _: False)
    events = SimpleNamespace(flush=lambda: None, write=lambda *_, **__: None)
    lead = paired_trainer.Lead(MadeUpTurns(), count=40, least=5, turn_s=3.0, slow_down=0.0)
    ticks = 0
    while not lead.warm:
        lead.ticked(events, 20)
        now_s += 2.0
        ticks += 1
    assert ticks == 1 + paired_trainer.WARM_UP_S / 2.0


def test_slowdown_is_refused_where_tasks_wait_for_peers(fake_engine, tmp_path: Path):
    with pytest.raises(HarnessError, match="--slow-down: needs a single leading process"):
        interleaved.measured(sides_of(fake_engine, tmp_path, LOOP), 1, slow_down=0.1, turns=10)


def pair(ratio: float) -> Pair:
    times = {"base": [1.0, 1.0, 1.0], "new": [ratio, ratio, 5.0]}
    return Pair(times, {}, {}, {}, {}, 0.0, 0.0, timed_s=6.0)


@pytest.mark.parametrize(
    ("ratios", "budget_s", "measured"),
    [((1.0, 1.001), 600, 8), ((1.0, 1.2), 57, 10), ((1.0, 1.2), 180, 30)],
)
def test_it_measures_until_it_is_enough_or_the_budget_is_spent(
    monkeypatch, ratios: tuple[float, float], budget_s: float, measured: int
):
    monkeypatch.setattr(interleaved, "measured", lambda _, number, *__: pair(ratios[number % 2]))
    assert len(list(interleaved.measure([], budget_s))) == measured


def test_a_control_is_measured_after_each_pair(monkeypatch):
    """It is of the base alone, without an injected slowdown."""
    made: list[tuple[Any, int, float]] = []

    def measured(launches: Any, number: int, slow_down: float, _) -> Pair:
        made.append((launches, number, slow_down))
        return pair(1.5 if launches == ["base", "control"] else 1.0)

    monkeypatch.setattr(interleaved, "measured", measured)
    sides: list[Any] = ["base", "new"]
    control: list[Any] = ["base", "control"]
    found = list(interleaved.measure(sides, 600, 0.1, control))
    assert made[:3] == [(sides, 0, 0.1), (control, 0, 0.0), (sides, 1, 0.1)]
    for one in found:
        assert one.control is not None
        assert np.allclose(one.control, np.log([1.5, 1.5, 5.0]))


@pytest.mark.parametrize(
    ("processes", "later"),
    [(0.0, interleaved.TURNS), (0.002, interleaved.TURNS), (0.08, interleaved.FEWER_TURNS)],
)
def test_the_budget_goes_to_processes_where_they_are_what_differs(
    monkeypatch, processes: float, later: int
):
    rng = np.random.default_rng(3)
    asked = []

    def measured(_, number: int, __: float, turns: int) -> Pair:
        asked.append(turns)
        new = np.exp(rng.normal((-1) ** number * processes, 0.1, turns))
        times = {"base": [1.0] * turns, "new": list(new)}
        return Pair(times, {}, {}, {}, {}, 0.0, 0.0, timed_s=turns * interleaved.TURN_S)

    monkeypatch.setattr(interleaved, "measured", measured)
    list(interleaved.measure([], 60.0))
    assert asked[:8] == [interleaved.TURNS] * 8
    assert set(asked[8:]) == {later}


def options(**given) -> SimpleNamespace:
    return SimpleNamespace(**{"trainer": [], "backend": [], "keras": [], "python": None, **given})


@pytest.mark.parametrize(
    ("base", "new", "sets"),
    [
        (None, None, {}),
        ("same", None, {}),
        ("documented", None, {}),
        ("ring", "nccl", {"backend": ["nccl"]}),
        ("single_process", "keras_mirrored", {"trainer": ["keras_mirrored"]}),
        ("tf_keras", "keras3", {"keras": ["keras3"]}),
        ("old/train.py", "new/train.toml", {"trainer": ["new/train.toml"]}),
        ("single_process", "train.py", {"trainer": ["train.py"]}),
        (sys.executable, sys.executable, {"python": sys.executable}),
    ],
)
def test_the_new_side_is_chosen_by_the_option_of_its_kind(base, new, sets):
    assert sides.chosen(base, new, options()) == sets


@pytest.mark.parametrize(
    ("base", "new", "given", "says"),
    [
        (None, "ring", {}, "--new ring: compared with what? give --base as well"),
        ("ring", "keras3", {}, "--base ring --new keras3: one is a backend, the other is not"),
        (
            "rign",
            None,
            {},
            "--base rign: no interpreter, no program, and none of same, documented, single_process",
        ),
        ("ring", "nccl", {"backend": ["auto"]}, "--new nccl: --backend is given as well"),
        ("old.py", "ring", {}, "--base old.py --new ring: one is a trainer, the other is not"),
    ],
)
def test_what_cannot_be_compared_is_one_line(base, new, given, says):
    with pytest.raises(BadInput) as error:
        sides.chosen(base, new, options(**given))
    assert str(error.value).startswith(says)


def test_the_base_differs_in_that_one_thing():
    cluster = Case(BY_NAME["custom_loop_multi_worker_mirrored"], "nccl", "keras3")
    assert sides.base_of("same", cluster, HERE, HERE).case == cluster
    assert sides.base_of("ring", cluster, HERE, HERE).case == replace(cluster, backend="ring")
    assert sides.base_of("tf_keras", cluster, HERE, HERE).case == replace(cluster, keras="tf_keras")
    other = sides.base_of("single_process", ALONE, HERE, HERE)
    assert other.case.trainer.name == "single_process"
    assert other.versions["keras"] == "tf_keras 2.21.0"


@pytest.mark.parametrize(
    ("base", "new", "names"),
    [
        ("old/train.toml", "new/train.toml", ["old/train.toml", "new/train.toml"]),
        ("a/x/train.py", "b/x/train.py", ["a/x/train.py", "b/x/train.py"]),
        ("old/train.py", "old/train.toml", ["train.py", "train.toml"]),
        ("old/train.py", "old/../old/train.py", ["train", "train"]),
        ("old/train.py", "new/changed.py", ["train", "changed"]),
    ],
)
def test_programs_with_one_name_are_known_by_their_paths(tmp_path, base, new, names):
    paths = [str(tmp_path / name) for name in (base, new)]
    programs = [replace(BY_NAME["single_process"], name=Path(path).stem) for path in paths]
    base_side, new_side = (
        sides.Side(side, replace(ALONE, trainer=row), HERE)
        for side, row in zip(("base", "new"), programs, strict=True)
    )
    settings = Settings(base=paths[0], trainers=(paths[1],))
    assert [side.trainer for side in sides.with_paths(base_side, new_side, settings)] == names
    itself = sides.with_paths(new_side, new_side, replace(settings, base="same"))
    assert [side.trainer for side in itself] == [programs[1].name] * 2


def test_program_of_a_user_is_a_side_and_takes_turns(tmp_path):
    (tmp_path / "train.py").write_text("import tensorflow as tf\nmodel.fit(x)\n")
    text = 'program = "train.py"\nargs = ["--epochs={epochs}"]\n'
    (tmp_path / "mine.toml").write_text(text)
    base = str(tmp_path / "mine.toml")
    sides.check(base, 1.0)
    with pytest.raises(BadInput, match="no such file"):
        sides.check(str(tmp_path / "gone.py"), 1.0)
    side = sides.base_of(base, ALONE, HERE, HERE)
    assert (side.trainer, side.case.trainer.of_user) == ("mine", True)

    planned: list[Any] = []

    class Launching(SimpleNamespace):
        def __call__(self, trainer, *, workers, flags):
            assert workers is None
            plan = Plan(
                trainer, Topology(), {}, "none", "tf_keras", flags, {}, {}, "python",
                tmp_path, tmp_path, "",
            )  # fmt: skip
            planned.append(SimpleNamespace(plan=plan, drivers=("worker/0",)))
            return planned[-1]

    engine = SimpleNamespace(
        defaults={"data": str(data_file(tmp_path, 4))}, topology=lambda _: Topology()
    )
    launch = Launching(case=side.case, engine=engine, directory=tmp_path)
    cluster = interleaved.cluster_of(launch, {"turns": "/t"}, {"count": 3})  # type: ignore[arg-type]
    arguments = cluster.plan.arguments("worker/0")
    assert arguments[:2] == ["--task", "worker/0"]
    assert Path(arguments[2]).name == "paired_trainer.py"
    assert arguments[3:7] == ["--turns", "/t", "--count", "3"]
    assert arguments[-2:] == ["--", f"--epochs={staging.NEVER}"]
    assert cluster.plan.trainer.spawn == "exec"


def test_keras_2_is_the_counterpart_of_tf_keras(monkeypatch):
    old = Interpreter(sys.executable, "3.11", "2.15.1", keras="2.15.0")
    monkeypatch.setattr(sides, "describe", lambda _: old)
    assert sides.interpreter_of("same", HERE) == HERE
    assert sides.interpreter_of(sys.executable, HERE) == old
    assert sides.base_of(sys.executable, ALONE, old, HERE).case.keras == "keras2"
    with pytest.raises(HarnessError, match="has no keras3 to compare"):
        sides.base_of(sys.executable, replace(ALONE, keras="keras3"), old, HERE)


def test_sides_without_a_common_keras_are_compared_each_with_its_own(monkeypatch):
    old = Interpreter(sys.executable, "3.11", "2.15.1", keras="2.15.0")
    new = Interpreter(sys.executable, "3.11", "2.21.0", keras="3.15.1")
    monkeypatch.setattr(sides, "describe", lambda _: old)
    case = replace(ALONE, keras="keras3")
    assert sides.base_of(sys.executable, case, old, new).case.keras == "keras2"
    assert sides.base_of(sys.executable, SUPERVISOR, old, new).case.keras == "none"
    assert sides.comparable(sys.executable, [case], new) == ([case], [])
    monkeypatch.setattr(sides, "describe", lambda _: new)
    assert sides.base_of(sys.executable, ALONE, new, old).case.keras == "keras3"


@pytest.mark.parametrize(
    ("base", "new", "backend", "keras"),
    [
        ("custom_loop_multi_worker_mirrored", ALONE, "auto", "tf_keras"),
        ("supervisor_parameter_server", ALONE, "none", "none"),
        ("single_process", SUPERVISOR, "none", "tf_keras"),
    ],
)
def test_another_trainer_is_compared_with_what_it_has(
    base: str, new: Case, backend: str, keras: str
):
    found = sides.base_of(base, new, HERE, HERE).case
    assert (found.trainer.name, found.backend, found.keras) == (base, backend, keras)


@pytest.mark.parametrize(
    ("base", "left_out"),
    [
        ("same", {}),
        ("ring", {ALONE: "has no backend ring", SUPERVISOR: "has no backend ring"}),
        ("keras3", {SUPERVISOR: "does without Keras, so it has no keras3"}),
        (sys.executable, {replace(ALONE, keras="keras3"): "has no keras3 to compare keras3 with"}),
    ],
)
def test_cases_that_cannot_differ_so_are_left_out_with_the_reason(
    monkeypatch, base: str, left_out: dict[Case, str]
):
    old = Interpreter(sys.executable, "3.11", "2.15.1", keras="2.15.0", tf_keras="2.21.0")
    monkeypatch.setattr(sides, "describe", lambda _: old)
    several = Case(BY_NAME["keras_multi_worker_mirrored"], "nccl", "tf_keras")
    cases = [ALONE, SUPERVISOR, several, *(c for c in left_out if c.keras == "keras3")]
    found, reasons = sides.comparable(base, cases, HERE)
    assert found == [case for case in cases if case not in left_out]
    for (case, why), reason in zip(left_out.items(), reasons, strict=True):
        assert reason.startswith(f"{case.id}: ")
        assert why in reason


@pytest.mark.parametrize("asked", [None, *MALLOC])
def test_where_sides_take_turns_freed_memory_is_kept_unless_asked(
    fake_engine, tmp_path: Path, asked: str | None
):
    settings: Any = SimpleNamespace(malloc=asked, at_once=1)
    session = Session(settings, HERE, fake_engine, *[None] * 3)  # type: ignore[arg-type]
    launch = Launch(session, ALONE, tmp_path, "paired")
    both = [sides.Side(name, ALONE, HERE) for name in ("base", "new")]
    with interleaved.launches(launch, both) as launched:
        found = {one.session.engine.malloc for one in launched}
    assert found == {asked or "keep"}


def test_variables_of_a_side_reach_its_tasks_only(fake_engine, tmp_path: Path):
    settings: Any = SimpleNamespace(
        malloc=None, at_once=1, base_env=("X=1=2", "TF_USE_LEGACY_KERAS=0"), new_env=()
    )
    session = Session(settings, HERE, fake_engine, *[None] * 3)  # type: ignore[arg-type]
    launch = Launch(session, ALONE, tmp_path, "paired")
    both = [
        sides.with_variables(sides.Side(name, ALONE, HERE), settings) for name in ("base", "new")
    ]
    assert [side.assignments for side in both] == ["X=1=2 TF_USE_LEGACY_KERAS=0", ""]
    own = HERE.environment(ALONE.keras)
    with interleaved.launches(launch, both) as launched:
        found = [one.session.engine.flavors[ALONE.keras] for one in launched]
    assert found == [{**own, "X": "1=2", "TF_USE_LEGACY_KERAS": "0"}, own]


def test_a_variable_of_one_side_needs_a_base():
    with pytest.raises(BadInput, match=r"X=1: a variable of one side.*give --base"):
        sides.check(None, 1.0, ("X=1",))


def test_documented_side_is_another_program_of_the_trainer():
    new = sides.Side("new", ALONE, HERE)
    base = sides.base_of("documented", ALONE, HERE, HERE)
    assert (base.trainer, new.trainer) == ("documented", ALONE.trainer.name)
    assert base.case.trainer.name == ALONE.trainer.name
    assert Path(base.case.trainer.program).name == "as_documented.py"


def test_every_trainer_has_its_documented_snippet():
    assert [row.name for row in TRAINERS if not sides.document_of(row).exists()] == []


def test_trainer_without_a_documented_snippet_has_no_pair(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(sides, "DOCUMENTS", tmp_path)
    with pytest.raises(HarnessError, match="bare calls of single_process's document are not in"):
        sides.base_of("documented", ALONE, HERE, HERE)
    assert not cases.Needs(documented=True).met_by(ALONE.trainer)
    assert cases.Needs().met_by(ALONE.trainer)


# The observer reports `steps` steps of it. From five steps on, it then waits to be ended.
DOCUMENTED = """
import sys, threading
sys.path[:0] = [{root!r}, {root!r} + "/suite/programs"]
import wrapped
events = wrapped.event_writer()
for step in range(1, {steps} + 1):
    events.write("step", step=step, global_step=step, loss=None, examples=None)
if {steps} >= 5:
    threading.Event().wait()
"""


@pytest.mark.parametrize("steps", [2, 5])
def test_the_document_s_bare_calls_have_to_make_a_few_steps(
    fake_engine, tmp_path: Path, monkeypatch, steps: int
):
    program = tmp_path / "as_documented.py"
    program.write_text(DOCUMENTED.format(root=str(ROOT), steps=steps))
    monkeypatch.setattr(sides, "AS_DOCUMENTED", str(program))
    launch = sides_of(fake_engine, tmp_path, SINGLE)[0]
    if steps < staging.FEW:
        with pytest.raises(TrainerFailed, match="ended before `step`"):
            interleaved.documented(launch)
    else:
        run = interleaved.documented(launch)
        assert len(run.of("step", "worker/0")) == steps
        assert run.flags["approach"] == SINGLE.name
