"""Tests of --trainer with a user's program: how it becomes a row, and which tests it gets."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reference_trainers import BY_NAME, TRAINERS, Trainer
from suite.harness.checks import accounting, checkpoints, restart, startup
from suite.harness.checks.assertions import reported
from suite.harness.cluster.launch_spec import OBSERVE, STARTUP, Plan
from suite.harness.cluster.launcher import Engine
from suite.harness.core.deadlines import Deadlines
from suite.harness.core.errors import (
    BadInput,
    CheckFailed,
    DeadlineExceeded,
    HarnessError,
    NotExamined,
    TrainerFailed,
)
from suite.harness.core.history import Event, Run
from suite.harness.core.paths import ROOT, TASK_SIDE
from suite.harness.core.settings import Settings
from suite.harness.core.topology import Topology
from suite.harness.environment.interpreter import Interpreter
from suite.harness.faults import injection, matrix
from suite.harness.pytest_plugin import fixtures
from suite.harness.pytest_plugin.parametrization import Needs, select
from suite.harness.scenarios import base, crashes, fault_free
from suite.harness.tables import programs
from suite.meta.fakes import data_file
from suite.meta.histories import history, restarted

STRATEGY = "import tensorflow as tf\nstrategy = tf.distribute.{}()\n"
ARGS = 'program = "train.py"\nargs = {}\n'


def written(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text)
    return path


def row_of(directory: Path, toml: str, source: str = STRATEGY) -> Trainer:
    written(directory, "train.py", source.format("MultiWorkerMirroredStrategy"))
    return programs.read(written(directory, "described.toml", toml)).row


@pytest.mark.parametrize(
    ("source", "approach", "like", "role"),
    [
        (STRATEGY.format("MultiWorkerMirroredStrategy"), "mwms", "custom_loop_", "tf_config"),
        (
            STRATEGY.format("MultiWorkerMirroredStrategy") + "model.fit(x)",
            "mwms",
            "keras_multi_worker_mirrored",
            "tf_config",
        ),
        (STRATEGY.format("MirroredStrategy"), "mirrored", "custom_loop_mirrored", "none"),
        (
            STRATEGY.format("ParameterServerStrategy") + "model.fit(x)",
            "ps2",
            "keras_parameter_server",
            "tf_config",
        ),
        (
            "from tensorflow.estimator import train_and_evaluate\n"
            + STRATEGY.format("MultiWorkerMirroredStrategy"),
            "estimator",
            "estimator_",
            "tf_config",
        ),
        ("tf.compat.v1.train.MonitoredTrainingSession()", "ps1", "supervisor_", "tf_config"),
        (
            "flag('ps_hosts')\ntf.train.replica_device_setter()",
            "ps1",
            "supervisor_",
            "host_flags",
        ),
        ("opt = tf.train.SyncReplicasOptimizer(o)", "ps1-sync", "sync_replicas_", "tf_config"),
        ("dtensor.create_mesh()", "dtensor", "dtensor_", "none"),
        ("model.fit(x)", "single", "single_process", "none"),
    ],
)
def test_approach_follows_from_the_source(
    tmp_path: Path, source: str, approach: str, like: str, role: str
):
    program = programs.read(written(tmp_path, "train.py", source))
    assert (program.approach, program.row.role) == (approach, role)
    assert program.row.like.startswith(like)
    assert program.row.level == programs.OBSERVED


def test_other_strategies_that_a_source_names_are_in_the_reason(tmp_path: Path):
    made = ("MirroredStrategy", "MultiWorkerMirroredStrategy")
    program = programs.read(written(tmp_path, "train.py", "".join(map(STRATEGY.format, made))))
    assert program.approach == "mwms"
    assert program.reason.endswith('; say approach = "mirrored" if it makes MirroredStrategy')
    estimator = f"{STRATEGY.format(made[0])}tf.estimator.train_and_evaluate()\n"
    program = programs.read(written(tmp_path, "estimate.py", estimator))
    assert (program.approach, "; say" in program.reason) == ("estimator", False)


def test_strategy_in_an_imported_local_module_is_found(tmp_path: Path):
    (tmp_path / "lib").mkdir()
    written(tmp_path / "lib", "__init__.py", "")
    written(tmp_path / "lib", "made.py", "\n" + STRATEGY.format("MultiWorkerMirroredStrategy"))
    program = programs.read(written(tmp_path, "train.py", "from lib import made\n"))
    assert program.approach == "mwms"
    assert program.reason == "since line 3 of made.py uses MultiWorkerMirroredStrategy"


@pytest.mark.parametrize(
    ("source", "backend", "flavor"),
    [
        ("CommunicationImplementation.RING", "ring", ""),
        ("a.RING if ring else a.NCCL", "auto", ""),
        ("os.environ['TF_USE_LEGACY_KERAS'] = '1'", "auto", "tf_keras"),
        ("import tf_keras as keras", "auto", "tf_keras"),
        ("from tf_keras import layers", "auto", "tf_keras"),
    ],
)
def test_backend_and_flavor_follow_from_the_source(
    tmp_path: Path, source: str, backend: str, flavor: str
):
    whole = STRATEGY.format("MultiWorkerMirroredStrategy") + source
    row = programs.read(written(tmp_path, "train.py", whole)).row
    assert (row.backends, row.flavor) == ((backend,), flavor)
    expected = flavor or "keras3"
    for installed, wanted in ((["tf_keras", "keras3"], expected), (["keras2"], "keras2")):
        asked = Settings(trainers=(str(tmp_path / "train.py"),))
        (case,) = select(Needs(level="observed"), asked, installed, [row])
        assert case.keras == wanted


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("program = 'gone.py'", "there is no file"),
        ("progam = 'train.py'", "unknown key 'progam' (did you mean 'program'?)"),
        ("program = 'train.py'\nmodule = 'train'", "either a program or a module"),
        ("program = 'train.py'\nargs = ['{epoch}']", "no placeholder {epoch} (did you mean"),
        ("program = 'train.py'\nargs = ['{epochs']", "expected '}'"),
        ("program = 'train.py'\napproach = 'mwsm'", "no approach 'mwsm' (did you mean 'mwms'?)"),
        ("program = 'train.py'\nbackend = 'gloo'", "one of auto, ring, nccl, not 'gloo'"),
        ("program = 'train.py'\ncluster = {wroker = 2}", "cluster: unknown job 'wroker'"),
        ("program = 'train.py'\ncluster = {worker = '2'}", "a number of tasks, not '2'"),
        ("program = 'train.py'\nenv = {A = 1}", "env, A: a string, not 1"),
        ("program = 'train.py'\nspawn = 'thread'", "spawn must be fork or exec"),
        ("program = ", "not TOML"),
    ],
)
def test_bad_description_is_refused_in_one_line(tmp_path: Path, toml: str, message: str):
    with pytest.raises(BadInput) as refused:
        row_of(tmp_path, toml)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["gone.py", "."])
def test_path_that_is_no_file_is_refused(tmp_path: Path, name: str):
    with pytest.raises(BadInput, match="give a program"):
        programs.read(tmp_path / name)


def test_two_programs_of_one_name_are_refused(tmp_path: Path):
    (tmp_path / "other").mkdir()
    paths = [str(written(d, "train.py", "")) for d in (tmp_path, tmp_path / "other")]
    with pytest.raises(BadInput, match="train is also the name of"):
        programs.programs(paths)
    with pytest.raises(BadInput, match="also the name of a reference trainer"):
        programs.programs([str(written(tmp_path, "single_process.py", ""))])


@pytest.mark.parametrize(
    ("toml", "level"),
    [
        (ARGS.format("[]"), "observed"),
        (ARGS.format("['--epochs={epochs}']"), "declared"),
        (ARGS.format("[]") + "deterministic = true", "declared"),
        (ARGS.format("[]") + "equivalent = true", "declared"),
        (ARGS.format("[]") + "observe = false", "black box"),
        (ARGS.format("[]") + "events = ['step']", "reporting"),
    ],
)
def test_level_follows_from_what_is_declared(tmp_path: Path, toml: str, level: str):
    row = row_of(tmp_path, toml)
    assert row.level == level
    assert row.observed == (level in ("observed", "declared"))


@pytest.mark.parametrize(
    ("needs", "args", "lacking"),
    [
        (Needs(level="black box"), [], ""),
        (Needs(level="observed"), [], ""),
        (Needs(), ["--e={epochs}"], "only the suite's own trainers"),
        (Needs(controls=("epochs",)), [], "with {epochs}"),
        (Needs(controls=("epochs", "model-dir")), ["{epochs}"], "with {model_dir}"),
        (Needs(controls=("length",)), [], "{epochs} or {steps_per_epoch}"),
        (Needs(controls=("length",)), ["{steps_per_epoch}"], ""),
        (Needs(deterministic=True), ["{epochs}"], "deterministic = true"),
        (Needs(equivalent=True), ["{epochs}"], "equivalent = true"),
        (Needs(controls=("batch-size",)), ["{global_batch_size}"], ""),
        (Needs(of_user=True, level="black box"), [], ""),
    ],
)
def test_test_examines_a_program_only_if_it_can(
    tmp_path: Path, needs: Needs, args: list[str], lacking: str
):
    row = row_of(tmp_path, ARGS.format(args))
    assert needs.apply_to(row)
    assert lacking in needs.lacking(row)
    assert needs.met_by(row) == (not lacking)
    assert not any(needs.lacking(reference) for reference in TRAINERS)


def test_program_that_writes_the_events_still_needs_the_arguments(tmp_path: Path):
    events = "events = ['step', 'epoch']\n"
    bare = row_of(tmp_path, ARGS.format("[]") + events)
    assert Needs(level="observed", events=("step",)).met_by(bare)
    assert not Needs(level="observed", events=("restored",)).apply_to(bare)
    assert "with {epochs}" in Needs(controls=("epochs",)).lacking(bare)
    assert "only the suite's own trainers" in Needs(events=("step",)).lacking(bare)
    (tmp_path / "declared").mkdir()
    declared = row_of(tmp_path / "declared", ARGS.format("['--epochs={epochs}']") + events)
    assert Needs(controls=("epochs",), events=("step",)).met_by(declared)


def test_numbers_that_a_program_does_not_report_are_not_examined(tmp_path: Path):
    row = row_of(tmp_path, ARGS.format("[]"))
    steps = [Event("step", float(i), "worker/0", 0, {"loss": 1.0}) for i in range(3)]
    run = Run(row, ("worker/0",), ("worker/0",), "none", "none", tuple(steps))
    reported(run, "step", "loss")
    with pytest.raises(NotExamined, match="does not report examples of each step"):
        reported(run, "step", "examples")
    silent = replace(steps[1], data={"loss": None})
    run = replace(run, events=(steps[0], silent, steps[2]))
    with pytest.raises(NotExamined, match="does not report loss of each step"):
        reported(run, "step", "loss")
    reported(replace(run, trainer=TRAINERS[0]), "step", "loss")


def test_reference_trainers_do_not_get_tests_for_programs_of_users(tmp_path: Path):
    needs = Needs(of_user=True, level="black box")
    assert select(needs, Settings(), ["keras2"]) == []
    (case,) = select(needs, Settings(), ["keras2"], [row_of(tmp_path, ARGS.format("[]"))])
    assert case.id == "described-auto-keras2"


def plan_of(row: Trainer, **flags: object) -> Plan:
    return Plan(
        trainer=row,
        topology=Topology(row.jobs),
        addresses={f"worker/{i}": f"localhost:{i}" for i in range(2)},
        backend="auto",
        keras="keras2",
        flags=flags,
        env={"KEPT": "1", "GIVEN": "harness"},
        gpus={},
        python="python",
        events=Path("events"),
        logs=Path("logs"),
        label="",
    )


def test_program_is_started_by_the_observer_with_its_own_arguments(tmp_path: Path):
    toml = ARGS.format("['--dir', '{model_dir}', '--x={{}}']") + "env = {GIVEN = 'user'}"
    row = row_of(tmp_path, toml)
    plan = plan_of(row, **{"model-dir": "/m", "epochs": 3})
    program = str(tmp_path / "train.py")
    assert plan.program == str(OBSERVE)
    arguments = ["--task", "worker/1", program, "--dir", "/m", "--x={}"]
    assert plan.arguments("worker/1") == arguments
    environment = plan.environment("worker/1", 0)
    assert (environment["KEPT"], environment["GIVEN"]) == ("1", "user")
    unobserved = plan_of(replace(row, observed=False), **{"model-dir": "/m"})
    assert unobserved.program == program
    assert unobserved.arguments("worker/1") == arguments[3:]


def package(directory: Path, source: str = "from .. import made\n", **more: str) -> Path:
    """Write a package whose module `train` makes its strategy in another one; return its TOML."""
    (directory / "pkg" / "sub").mkdir(parents=True)
    for name in ("pkg/__init__.py", "pkg/sub/__init__.py"):
        written(directory, name, "")
    written(directory, "pkg/made.py", STRATEGY.format("MultiWorkerMirroredStrategy"))
    written(directory, "pkg/sub/train.py", source)
    lines = [f"{name} = {value}" for name, value in more.items()]
    return written(directory, "described.toml", "\n".join(['module = "pkg.sub.train"', *lines]))


@pytest.mark.parametrize(
    "source", ["from .. import made\n", "from ..made import strategy\n", "from pkg import made\n"]
)
def test_module_s_relative_and_absolute_imports_are_followed(tmp_path: Path, source: str):
    program = programs.read(package(tmp_path, source))
    assert program.reason == "since line 2 of made.py uses MultiWorkerMirroredStrategy"
    assert program.row.program == str(tmp_path / "pkg" / "sub" / "train.py")


def test_module_is_started_by_its_name(tmp_path: Path):
    toml = package(tmp_path, env='{PYTHONPATH = "/own"}', args='["--x"]')
    row = programs.read(toml).row
    plan = replace(plan_of(row), env={"PYTHONPATH": "/session"})
    assert plan.arguments("worker/1") == ["--task", "worker/1", "--module", "pkg.sub.train", "--x"]
    assert plan.environment("worker/1", 0)["PYTHONPATH"] == f"{tmp_path}:/own:/session"
    unobserved = replace(plan, trainer=replace(row, observed=False))
    assert (unobserved.program, unobserved.is_module) == ("pkg.sub.train", True)
    assert not plan.is_module
    ended = f"PYTHONPATH={tmp_path}:/own TF_CONFIG="
    assert unobserved.command("worker/1").startswith(ended)
    assert unobserved.command("worker/1").endswith("python -m pkg.sub.train --x")
    assert plan.command("worker/1").startswith(ended)


@pytest.mark.parametrize(
    ("taken_for", "made", "message"),
    [
        ("MultiWorkerMirroredStrategy", "MultiWorkerMirroredStrategy", ""),
        ("MultiWorkerMirroredStrategy", None, ""),  # reported by the program itself
        (
            "MultiWorkerMirroredStrategy",
            "MirroredStrategy",
            'but worker/1 made MirroredStrategy; say approach = "mirrored" in the TOML file',
        ),
        ("MirroredStrategy", "", 'worker/1 made no strategy; say approach = "single"'),
        ("", "ParameterServerStrategy", "taken for single (no strategy), but worker/1 made Par"),
        ("", "", ""),
        ("create_mesh", "Mesh", ""),
        ("Supervisor", "", ""),
        ("train_and_evaluate", "MirroredStrategy", ""),
    ],
)
def test_made_strategy_is_compared_with_the_approach(
    tmp_path: Path, taken_for: str, made: str | None, message: str
):
    row = programs.read(written(tmp_path, "train.py", f"import tf\ntf.{taken_for or 'x'}()")).row
    own = {} if made is None else {"strategy": made}
    run = replace(history(("worker/0", "joined", {}), ("worker/1", "joined", own)), trainer=row)
    if not message:
        return startup.strategy_as_recognized(run)
    with pytest.raises(CheckFailed, match=re.escape(message)):
        startup.strategy_as_recognized(run)
    return None


def test_strategies_are_named_as_the_observer_names_them():
    source = (TASK_SIDE / "training_observer" / "strategies.py").read_text()
    for name in filter(None, programs.STRATEGIES):
        assert f'"{name}"' in source


@pytest.mark.parametrize(("workers", "batch"), [(1, "64"), (2, "128")])
def test_global_batch_grows_with_the_workers(tmp_path: Path, workers: int, batch: str):
    row = row_of(tmp_path, ARGS.format("['{batch_size}', '{global_batch_size}']"))
    plan = replace(plan_of(row, **{"batch-size": 64}), topology=Topology((("worker", workers),)))
    assert plan.arguments("worker/0")[-2:] == ["64", batch]


def test_short_program_is_not_examined_and_a_failed_one_is(tmp_path: Path):
    row = row_of(tmp_path, ARGS.format("[]"))

    class Ended(SimpleNamespace):
        deadlines = Deadlines()

        def wait_for(self, *_: object, **how: object) -> None:
            of_user = self.plan.trainer.of_user
            assert how.get("within_s") == (self.deadlines.run_s if of_user else None)
            raise TrainerFailed("ended before `step`")

        def run(self) -> Run:
            ends = [("worker/0", "finished", {"steps": 3})]
            return history(*ends, ("worker/0", "exited", {"code": self.code}))

    for code, error in ((0, NotExamined), (1, TrainerFailed)):
        cluster = Ended(plan=SimpleNamespace(trainer=row), code=code, drivers=("worker/0",))
        with pytest.raises(error) as refused:
            base.wait_training(cluster, "step", "worker/0")  # type: ignore[arg-type]
        assert ("{epochs}" in str(refused.value)) == (error is NotExamined)
        assert ("after 3 steps" in str(refused.value)) == (error is NotExamined)
    trainer = replace(row, arguments=None)
    cluster = Ended(plan=SimpleNamespace(trainer=trainer), code=0, drivers=("worker/0",))
    with pytest.raises(TrainerFailed):
        base.wait_training(cluster, "step", "worker/0")  # type: ignore[arg-type]


@pytest.mark.parametrize(("age_s", "error"), [(0, NotExamined), (1e6, DeadlineExceeded)])
def test_program_that_trains_and_does_not_save_is_not_examined(
    tmp_path: Path, age_s: float, error: type[Exception]
):
    row = row_of(tmp_path, ARGS.format("[]"))
    run = history(("worker/0", "step", {"global_step": 9}))
    step = replace(run.events[0], time_s=time.monotonic() - age_s)

    class Training(SimpleNamespace):
        def wait_for(self, *_: object, **how: object) -> None:
            assert "within_s" not in how
            raise DeadlineExceeded("waited")

        def run(self) -> Run:
            return replace(run, events=(step,), trainer=row)

    cluster = Training(plan=SimpleNamespace(trainer=row), deadlines=Deadlines())
    with pytest.raises(error):
        base.wait_training(cluster, "checkpoint_saved")  # type: ignore[arg-type]


@pytest.mark.parametrize(("saved", "right"), [(1, True), (0, False)])
def test_program_must_save_before_its_last_step_to_be_restarted(
    tmp_path: Path, saved: int, right: bool
):
    step = {"path": "/1", "global_step": saved or 4}
    usual = history(
        ("worker/0", "checkpoint_saved", step), ("worker/0", "finished", {"global_step": 4})
    )
    usual = replace(usual, trainer=row_of(tmp_path, ARGS.format("[]")))

    class Started(Exception):
        pass

    class Launch(SimpleNamespace):
        def outcome(self, _: object) -> Run:
            return usual

        def __call__(self, **_: object) -> None:
            raise Started

    launch = Launch(case=SimpleNamespace(trainer=usual.trainer), directory=tmp_path)
    launch.engine = SimpleNamespace(
        defaults={"data": str(data_file(tmp_path, 4))}, topology=lambda row: Topology(row.jobs)
    )
    with pytest.raises(Started if right else NotExamined):
        crashes.restarted_after_save(launch)  # type: ignore[arg-type]


def test_endless_work_of_a_program_keeps_its_epochs_short(tmp_path: Path):
    launch = SimpleNamespace(directory=tmp_path)
    launch.engine = SimpleNamespace(
        defaults={"data": str(data_file(tmp_path, 4))}, topology=lambda row: Topology(row.jobs)
    )
    for args, expected in (
        ("['{epochs}', '{steps_per_epoch}']", {"epochs": base.NEVER, "steps-per-epoch": 7}),
        ("['{epochs}']", {"epochs": base.NEVER}),
        ("['{steps_per_epoch}']", {"steps-per-epoch": base.NEVER}),
    ):
        programs.read.cache_clear()
        launch.case = SimpleNamespace(trainer=row_of(tmp_path, ARGS.format(args)))
        assert base.endless_work(launch, 7) == expected  # type: ignore[arg-type]


def test_fault_of_a_program_is_injected_by_the_program_that_runs_it(tmp_path: Path):
    row = row_of(tmp_path, ARGS.format("['--epochs={epochs}']"))
    launch = SimpleNamespace(case=SimpleNamespace(trainer=row))
    launch.engine = SimpleNamespace(
        topology=lambda *_: Topology(row.jobs), deadlines=SimpleNamespace()
    )
    scene = injection._Scenario(launch, matrix.Row("exit", "worker", "mid-epoch"))  # type: ignore[arg-type]
    how = {"flags": {"epochs": 3, "steps-per-epoch": 4}, "model_dir": tmp_path}
    program = scene._program(how)
    assert how["flags"] == {"epochs": 3, "steps-per-epoch": 4}
    arguments = plan_of(program, **how["flags"]).arguments("worker/1")
    assert arguments[:3] == ["--task", "worker/1", program.path]
    assert arguments[-2:] == ["--", "--epochs=3"]
    assert arguments[3:5] == ["--program", str(tmp_path / "train.py")]


@pytest.mark.parametrize(
    ("around", "own"),
    [
        ("faulty_trainer", ("--fault", "exit", "--target", "worker/1", "--at-step", "2")),
        ("paired_trainer", ()),
    ],
)
def test_program_around_a_trainer_takes_none_of_its_flags(
    tmp_path: Path, around: str, own: tuple[str, ...]
):
    trainer = written(tmp_path, "train.py", "import sys; print(*sys.argv[1:])")
    theirs = ["--model", "small-cnn", "--model-dir", "here", "--tur", "x", "--at", "1"]
    command = [sys.executable, ROOT / "suite" / "programs" / f"{around}.py", *own]
    result = subprocess.run(
        [*command, "--program", trainer, *theirs], capture_output=True, text=True, check=True
    )
    assert sorted(result.stdout.split()) == sorted(theirs)


class Item(SimpleNamespace):
    """A test that needs these events."""

    def get_closest_marker(self, name: str) -> object:
        return SimpleNamespace(kwargs={"events": self.events}) if name == "cases" else None


def test_program_without_an_event_is_not_examined_for_it():
    run = history(("worker/0", "step", {}))
    fixtures.must_be_observable(Item(events=("step", "restored")), run)  # type: ignore[arg-type]
    with pytest.raises(NotExamined, match="no event `checkpoint_saved`"):
        fixtures.must_be_observable(Item(events=("checkpoint_saved",)), run)  # type: ignore[arg-type]
    with pytest.raises(NotExamined, match="no event `epoch`; report it by training_reports"):
        fixtures.must_be_observable(Item(events=("epoch",)), run)  # type: ignore[arg-type]


def test_failed_hook_is_a_harness_error_where_events_are_needed():
    fields = {"hook": "fit.steps", "error": "KeyError: x"}
    run = history(("worker/1", "hook_failed", fields))
    with pytest.raises(HarnessError, match=r"hook fit\.steps failed in worker/1: KeyError: x"):
        fixtures.must_be_observed(Item(events=("step",)), run)  # type: ignore[arg-type]
    fixtures.must_be_observed(Item(events=()), run)  # type: ignore[arg-type]
    wrong = CheckFailed("too few examples")
    judged = Item(stash={fixtures.RUNS: [history(), run]})
    blamed = fixtures.blamed(judged, wrong)  # type: ignore[arg-type]
    assert isinstance(blamed, HarnessError)
    assert "hook fit.steps failed in worker/1: KeyError: x; so this may be wrong: too few" in str(
        blamed
    )
    for item, error in (
        (Item(stash={fixtures.RUNS: [history()]}), wrong),
        (Item(stash={}), wrong),
        (judged, None),
        (judged, TrainerFailed("exit 1")),
    ):
        assert fixtures.blamed(item, error) is error  # type: ignore[arg-type]
    assert Event.parse(run.events[0].line()).name == "hook_failed"


def test_a_red_test_without_all_hooks_is_a_harness_error():
    run = history(("worker/1", "observing", {"hooks": [], "missing": ["keras:Trainer.fit"]}))
    complete = history(("worker/1", "observing", {"hooks": [], "missing": []}))
    judged = Item(stash={fixtures.RUNS: [complete, run]})
    says = "does not find keras:Trainer.fit in worker/1; so this may be wrong: no evaluation"
    for error in (CheckFailed, TypeError, DeadlineExceeded):
        found = fixtures.unseen(judged, error("no evaluation"))  # type: ignore[arg-type]
        assert isinstance(found, HarnessError)
        assert says in str(found)
    for item, error in (
        (Item(stash={fixtures.RUNS: [complete]}), CheckFailed("no evaluation")),
        (judged, None),
        (judged, TrainerFailed("exit 1")),
        (judged, HarnessError("no memory")),
    ):
        assert fixtures.unseen(item, error) is error  # type: ignore[arg-type]


def epochs(*numbers: int) -> list[tuple[str, str, dict[str, int]]]:
    made = []
    for number in numbers:
        made += [("worker/0", "step", {}), ("worker/0", "epoch", {"epoch": number, "steps": 1})]
    return made


@pytest.mark.parametrize(("numbers", "right"), [((1, 2, 1, 2), True), ((1, 3), False)])
def test_epochs_of_a_program_that_trains_twice_start_over(
    tmp_path: Path, numbers: tuple[int, ...], right: bool
):
    row = row_of(tmp_path, ARGS.format("[]"))
    once = history(*epochs(*numbers))
    run = replace(once, trainer=row, tasks=("worker/0",), workers=("worker/0",))
    with contextlib.nullcontext() if right else pytest.raises(CheckFailed, match="epochs of"):
        accounting.epochs_accounted(run)
    with pytest.raises(CheckFailed, match="epochs of worker/0"):
        accounting.epochs_accounted(replace(run, trainer=once.trainer))


def test_shell_script_is_started_without_an_interpreter(tmp_path: Path):
    path = written(tmp_path, "launch.sh", "#!/bin/sh\n")
    with pytest.raises(BadInput, match="neither Python nor executable"):
        programs.read(path)
    path.chmod(0o755)
    programs.read.cache_clear()
    row = programs.read(path).row
    assert (row.level, row.spawn, row.python) == ("observed", "exec", False)
    plan = plan_of(row)
    assert plan.command(plan.topology.tasks[0]) == str(path)


def test_observer_gets_into_a_script_by_variables(tmp_path: Path):
    path = written(tmp_path, "launch.sh", "#!/bin/sh\n")
    path.chmod(0o755)
    row = replace(programs.read(path).row, environment=(("PYTHONPATH", "/own"),))
    plan = replace(plan_of(row), env={"PYTHONPATH": "/session"})
    (task,) = plan.topology.tasks
    found = plan.environment(task, 1)
    assert found["PYTHONPATH"].split(os.pathsep) == [str(STARTUP), "/own", "/session"]
    assert found["OBSERVER_TASK"] == task
    assert found["OBSERVER_EVENTS"] == str(plan.event_file(task, 1))
    assert found["OBSERVER_ATTEMPT"] == "1"
    assert "TRAINER_EVENTS" not in found
    alone = replace(plan, trainer=replace(row, observed=False)).environment(task, 1)
    assert alone["PYTHONPATH"].split(os.pathsep) == ["/own", "/session"]
    assert "OBSERVER_EVENTS" not in alone


@pytest.mark.parametrize(
    ("name", "text", "python"),
    [
        ("tool", "#!/venv/bin/python\nimport pkg", False),
        ("tool", "import pkg", True),
        ("tool.py", "#!/usr/bin/env python3\nimport pkg", True),
        ("tool", "#!/bin/sh\nexec tool2", False),
    ],
)
def test_first_line_starts_a_console_script(tmp_path: Path, name: str, text: str, python: bool):
    path = written(tmp_path, name, text)
    path.chmod(0o755)
    assert programs.read(path).row.python is python


@pytest.mark.parametrize(
    "line",
    [
        "exec python train.py --x",
        'python "$(dirname "$0")/train.py"',
        'python $HERE/sub/train.py "$@"',
        "python -u -m sub.train",
        "python  -m sub --x",
    ],
)
def test_approach_follows_from_the_program_that_a_shell_script_names(tmp_path: Path, line: str):
    (tmp_path / "sub").mkdir()
    for name in ("train.py", "sub/train.py", "sub/__main__.py"):
        written(tmp_path, name, STRATEGY.format("MultiWorkerMirroredStrategy"))
    path = written(tmp_path, "launch.sh", f"#!/bin/bash\nset -e\n{line}\n")
    path.chmod(0o755)
    assert programs.read(path).approach == "mwms"


def test_script_of_which_no_program_was_observed_is_not_examined(tmp_path: Path):
    path = written(tmp_path, "launch.sh", "#!/bin/sh\n")
    path.chmod(0o755)
    run = replace(history(("worker/0", "exited", {"code": 0})), trainer=programs.read(path).row)
    with pytest.raises(NotExamined, match=r"let it keep PYTHONPATH .* or say observe = false"):
        fixtures.must_be_observable(Item(events=()), run)  # type: ignore[arg-type]
    started = history(("worker/0", "started", {}))
    fixtures.must_be_observable(Item(events=()), replace(run, events=started.events))  # type: ignore[arg-type]


def test_other_interpreter_than_the_one_under_test_is_a_harness_error(tmp_path: Path):
    path = written(tmp_path, "launch.sh", "#!/bin/sh\n")
    path.chmod(0o755)
    versions = {"python": "3.11.7", "tensorflow": "2.15.1"}
    run = history(("worker/0", "started", versions))
    run = replace(run, trainer=programs.read(path).row)
    same, other = (Interpreter("python", "3.11.7", version) for version in ("2.15.1", "2.21.0"))
    fixtures.must_use_interpreter(run, same)
    with pytest.raises(HarnessError, match=r"TensorFlow 2\.15\.1 in worker/0, but .* 2\.21\.0 is"):
        fixtures.must_use_interpreter(run, other)


def test_program_may_remove_its_backup_but_not_keep_a_save_of_another_worker(tmp_path: Path):
    row = row_of(tmp_path, ARGS.format("[]"))
    kept = tmp_path / "worker-1"
    saves = [
        (f"worker/{i}", "checkpoint_saved", {"path": f"{tmp_path}/worker-{i}"}) for i in (0, 1)
    ]
    run = replace(history(*saves), trainer=row)
    checkpoints.only_chief_keeps(run)
    kept.mkdir()
    with pytest.raises(CheckFailed, match="paths of checkpoint_saved that remain"):
        checkpoints.only_chief_keeps(run)


def test_program_that_leaves_no_checkpoint_is_not_examined_for_resuming(tmp_path: Path):
    saved = history(("worker/0", "checkpoint_saved", {"path": str(tmp_path / "ckpt-1")}))
    run = replace(saved, trainer=row_of(tmp_path, ARGS.format("[]")))
    with pytest.raises(NotExamined, match="no checkpoint is left"):
        fault_free.must_leave_checkpoint(run)
    (tmp_path / "ckpt-1.index").touch()
    fault_free.must_leave_checkpoint(run)


def test_scripts_find_the_interpreter_first(fake_engine: Engine):
    path = fake_engine.activated()["PATH"].split(os.pathsep)
    assert path[0] == str(Path(sys.executable).parent)
    assert os.pathsep.join(path[1:]) == os.environ["PATH"]


@pytest.mark.parametrize(("steps", "ignored"), [(20, True), (7, False)])
def test_program_that_makes_all_steps_has_ignored_sigterm(steps: int, ignored: bool):
    asked = ("worker/0", "fault_started", {"fault": "sigterm"})
    exited = ("worker/0", "exited", {"code": 0, "signal": None})
    run = history(asked, ("worker/0", "finished", {"steps": steps}), exited)
    whole = history(("worker/0", "finished", {"steps": 20}))
    with pytest.raises(CheckFailed, match="to its end") if ignored else contextlib.nullcontext():
        restart.signal_ends_in_time(run, whole, 30.0)


@pytest.mark.parametrize(
    ("defect", "message"),
    [
        ("restores_an_older_step", "global step that worker/1 restored: 1, not 2"),
        ("restores_no_optimizer", "worker/0 restored 2, .* no state of the optimizer"),
    ],
)
def test_restore_of_a_save_without_optimizer_is_named(defect: str, message: str):
    launch: Any = SimpleNamespace(defect=defect)
    run = restarted(launch).run
    with pytest.raises(CheckFailed, match=message):
        restart.latest_save_is_restored(run)


@pytest.mark.parametrize(
    ("observed", "last", "enough"), [(True, 600, True), (False, 600, False), (True, 599, False)]
)
def test_observed_asynchronous_worker_need_not_see_the_last_step(
    observed: bool, last: int, enough: bool
):
    ends = [
        ("worker/0", "finished", {"global_step": last}),
        ("worker/1", "finished", {"global_step": 599}),
    ]
    run = history(*ends, *((task, "exited", {"code": 0}) for task, *_ in ends))
    row = replace(BY_NAME["supervisor_parameter_server"], observed=observed)
    run = replace(run, trainer=row, flags={"epochs": 1, "steps-per-epoch": 600})
    with contextlib.nullcontext() if enough else pytest.raises(CheckFailed, match="599"):
        accounting.finishes_requested_steps(run)


def test_flags_that_only_the_suite_needs_go_to_the_observer():
    plain = BY_NAME["custom_loop_multi_worker_mirrored"]
    plan = plan_of(plain, model="mlp", order="document", epochs=3, **{"audit-input": True})
    arguments = plan.arguments("worker/1")
    place = arguments.index(plain.program)
    own = ["--task", "worker/1", "--audit-input", "--model", "mlp", "--order", "document"]
    assert sorted(arguments[:place]) == sorted([*own, "--probe"])  # digests of what is saved
    assert arguments[place + 1 :] == ["--epochs", "3"]
    dtensor = BY_NAME["dtensor_data_parallel"]
    with_mesh = plan_of(dtensor, devices=4).arguments("worker/0")
    assert with_mesh[with_mesh.index(dtensor.program) + 1 :] == ["--devices", "4"]
    launch: Any = SimpleNamespace(case=SimpleNamespace(trainer=plain))
    assert not base.program(launch, "autoshard_file").plain  # it writes its own events
