"""Mutants: programs of users with one mistake each, and the tests that must find it.

The programs are in suite/programs/plain. They write no events, as those of users. A mutant is one
of them with a few texts replaced. It is examined twice: at level 1, by its file alone, and at level
2, with arguments for its length, directories, batch and seed. A mutant is found if a test fails
that passes for the program without the mistake.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from reports.core.table import Column, Row, Table
from reports.core.verdicts import FAILED
from reports.rundir.frame import BadInput, RunFrames
from suite.harness.core.paths import ROOT
from suite.mutants.edits import edited

PROGRAMS = ROOT / "suite" / "programs" / "plain"
LEVELS = (1, 2)
ARGS = (
    "--model_dir={model_dir}",
    "--data={data}",
    "--epochs={epochs}",
    "--steps={steps_per_epoch}",
    "--batch={batch_size}",
)
SEED = ("--seed={seed}",)
EXACT = "deterministic = true"
EQUAL = f"{EXACT}\nequivalent = true"


@dataclass(frozen=True)
class Program:
    """A program without a mistake, and how its TOML file describes it at level 2.

    `fails`: tests that may fail for it, with the reason; they find no mutant of it.
    """

    name: str
    args: tuple[str, ...]
    declares: str = ""
    fails: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def source(self) -> str:
        return (PROGRAMS / f"{self.name}.py").read_text(encoding="utf-8")


FIT = Program("keras_fit", (*ARGS, *SEED), EQUAL)
LOOP = Program("custom_loop", (*ARGS, *SEED, "--backend={backend}"), EQUAL)
MIRRORED = Program("mirrored", (*ARGS, *SEED), EXACT)
COORDINATOR = Program("coordinator", ARGS)
WAITS = "a worker that starts before the chief has initialized the variables waits 30 s for them"
ALONE = "with device filters a worker does not wait until all other workers are up"
SESSION = Program(
    "monitored_session",
    ARGS,
    fails={
        "test_all_workers_contribute": WAITS,
        "test_no_step_before_the_last_task_is_up": ALONE,
    },
)
BASES = (FIT, LOOP, MIRRORED, COORDINATOR, SESSION)


@dataclass(frozen=True)
class Mutant:
    """One mistake, the lowest level at which a test finds it, and the test that names it best.

    `level`: None if no test finds it; `why` then says the reason. `edits`: (text, replacement);
    each text occurs once in the program. `declares`: further lines of the TOML file at level 1.
    """

    name: str
    program: Program
    mistake: str
    edits: tuple[tuple[str, str], ...]
    level: int | None = None
    test: str = ""
    why: str = ""
    declares: str = ""

    @property
    def source(self) -> str:
        """Return the source with the mistake. Raise ValueError if a text does not occur once."""
        return edited(self.name, self.program.source, self.edits)


PARSED = "args = parser.parse_args()\n"
OWN_PATH = 'own = directory if rank == 0 else os.path.join(args.model_dir, f"worker-{rank}")\n'
REMOVED = "    if rank:\n        tf.io.gfile.rmtree(own)\n"
APPLIED = "optimizer.apply_gradients(zip(gradients, model.trainable_variables))"
BATCHED = "dataset = dataset.batch(batch, drop_remainder=True).repeat().take(args.steps)\n"
RESTORED = "if latest:\n    checkpoint.restore(latest)\n"
SAVED = "    manager.save()\n"
WITHOUT_SHARDS = (
    "shards = tf.data.Options()\n"
    "shards.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF\n"
)

WEIGHT_CHANGED = (
    "    epoch.assign_add(1)\n"
    "    if rank == 1:\n"
    "        copy = model.trainable_variables[0].values[0]\n"
    "        copy.assign(1.001 * copy)\n"
)
SHARDED_LATE = (
    WITHOUT_SHARDS
    + "dataset = dataset.with_options(shards).shuffle(4096, seed=rank)\n"
    + "dataset = dataset.shard(strategy.num_replicas_in_sync, rank)\n"
    + BATCHED
)
HANGING = (
    "    if epoch.numpy() == args.epochs:\n"
    '        __import__("threading").Event().wait()\n'
    "    print("
)


def after_parsing(lines: str) -> tuple[tuple[str, str], ...]:
    return ((PARSED, PARSED + lines),)


MUTANTS = (
    Mutant(
        "one_save_path",
        LOOP,
        "all workers save to one path",
        ((OWN_PATH, "own = directory\n"), (REMOVED, "")),
        level=1,
        test="test_no_two_workers_write_one_path",
    ),
    Mutant(
        "one_export_path",
        FIT,
        "all workers export to one path",
        (
            ('"saved" if is_chief else f"worker-{task.task_id}"', '"saved"'),
            ("if not is_chief:\n    tf.io.gfile.rmtree(path)\n", ""),
        ),
        level=1,
        test="test_no_two_workers_write_one_path",
    ),
    Mutant(
        "chief_saves_alone",
        LOOP,
        "only the chief saves",
        ((SAVED + REMOVED, "    if rank == 0:\n        manager.save()\n"),),
        level=1,
        test="test_no_two_workers_write_one_path",
    ),
    Mutant(
        "workers_keep_saves",
        LOOP,
        "workers do not remove their own saves",
        ((REMOVED, ""),),
        level=1,
        test="test_only_chief_checkpoints_remain",
    ),
    Mutant(
        "optimizer_not_saved",
        LOOP,
        "the checkpoint lacks the optimizer",
        (("model=model, optimizer=optimizer, epoch=epoch", "model=model, epoch=epoch"),),
        level=1,
        test="test_restart_restores_the_latest_save",
    ),
    Mutant(
        "slots_not_saved",
        LOOP,
        "the checkpoint has the optimizer's step count, and not its momenta",
        (("optimizer=optimizer, epoch", "step=optimizer.iterations, epoch"),),
        level=2,
        test="test_restarted_run_ends_with_its_usual_weights",
    ),
    Mutant(
        "epoch_saved_too_early",
        LOOP,
        "the epoch is advanced after it is saved",
        (("    epoch.assign_add(1)\n" + SAVED, SAVED + "    epoch.assign_add(1)\n"),),
        level=2,
        test="test_restarted_run_ends_at_its_last_step",
    ),
    Mutant(
        "saved_at_start_only",
        LOOP,
        "each worker saves before its first step, keeps that, and never saves again",
        (
            (
                "while epoch.numpy() < args.epochs:\n",
                "manager.save()\nwhile epoch.numpy() < args.epochs:\n",
            ),
            (SAVED + REMOVED, ""),
        ),
        level=1,
        test="test_only_chief_checkpoints_remain",
    ),
    Mutant(
        "never_restored",
        LOOP,
        "no checkpoint is restored",
        ((RESTORED, ""),),
        level=1,
        test="test_restart_restores_the_latest_save",
    ),
    Mutant(
        "chief_restores_alone",
        LOOP,
        "only the chief restores",
        (("if latest:", "if latest and rank == 0:"),),
        level=1,
        test="test_restart_restores_the_latest_save",
    ),
    Mutant(
        "own_directory_restored",
        LOOP,
        "each worker restores from the directory to which it saves",
        (("tf.train.latest_checkpoint(directory)", "tf.train.latest_checkpoint(own)"),),
        level=1,
        test="test_restart_restores_the_latest_save",
    ),
    Mutant(
        "loss_of_the_replica",
        LOOP,
        "the loss is the mean over the replica's examples, so the sum over replicas is too large",
        (("tf.nn.compute_average_loss(each, global_batch_size=batch)", "tf.reduce_mean(each)"),),
        level=2,
        test="test_workers_equal_one_worker_on_the_large_batch",
    ),
    Mutant(
        "batch_not_scaled",
        LOOP,
        "the global batch does not grow with the number of workers",
        (("batch = args.batch * strategy.num_replicas_in_sync", "batch = args.batch"),),
        level=2,
        test="test_workers_equal_one_worker_on_the_large_batch",
    ),
    Mutant(
        "gradients_not_reduced",
        LOOP,
        "gradients are not reduced, so each worker trains alone",
        ((APPLIED, APPLIED[:-1] + ", skip_gradients_aggregation=True)"),),
        level=1,
        test="test_workers_agree_on_weights",
    ),
    Mutant(
        "rate_by_rank",
        LOOP,
        "the learning rate differs between workers",
        (("SGD(0.05, momentum", "SGD(0.05 * (1 + rank), momentum"),),
        why="the rate is a variable of the strategy, which gives all workers the chief's value",
    ),
    Mutant(
        "one_worker_changed",
        LOOP,
        "one worker changes its copy of a weight after an epoch",
        (("    epoch.assign_add(1)\n", WEIGHT_CHANGED),),
        level=1,
        test="test_workers_agree_on_weights",
    ),
    Mutant(
        "seed_by_rank",
        LOOP,
        "workers have different seeds",
        (("set_random_seed(args.seed)", "set_random_seed(args.seed + rank)"),),
        why="the strategy gives all workers the chief's initial values, so nothing differs",
    ),
    Mutant(
        "layers_not_seeded",
        LOOP,
        "only TensorFlow is seeded, and not the initializers of Keras",
        (("tf.keras.utils.set_random_seed(args.seed)", "tf.random.set_seed(args.seed)"),),
        level=2,
        test="test_restarted_run_ends_with_its_usual_weights",
    ),
    Mutant(
        "not_sharded",
        LOOP,
        "every worker reads the same examples",
        ((BATCHED, BATCHED + WITHOUT_SHARDS + "dataset = dataset.with_options(shards)\n"),),
        level=2,
        test="test_workers_equal_one_worker_on_the_large_batch",
    ),
    Mutant(
        "sharded_after_shuffle",
        LOOP,
        "examples are sharded after each worker has shuffled them with its own seed",
        ((BATCHED, SHARDED_LATE),),
        level=2,
        test="test_workers_equal_one_worker_on_the_large_batch",
    ),
    Mutant(
        "other_backend",
        LOOP,
        "the requested communication is ignored",
        (
            (
                "CommunicationImplementation[args.backend.upper()]",
                "CommunicationImplementation.AUTO",
            ),
        ),
        level=1,
        test="test_requested_backend_reaches_the_strategy",
        declares='backend = "ring"',
    ),
    Mutant(
        "success_after_error",
        LOOP,
        "an error ends the program with exit code 0",
        after_parsing("import sys\nsys.excepthook = lambda *error: os._exit(0)\n"),
        level=1,
        test="test_peers_of_a_killed_chief_fail_in_time",
    ),
    Mutant(
        "fewer_steps_on_one_worker",
        LOOP,
        "one worker makes a step fewer in each epoch",
        (("range(args.steps)", "range(args.steps - rank)"),),
        level=1,
        test="test_every_task_exits_with_success",
    ),
    Mutant(
        "outside_scope",
        FIT,
        "the model is built and compiled outside the strategy's scope",
        (("with strategy.scope():", "if strategy:"),),
        level=1,
        test="test_peers_of_a_killed_chief_fail_in_time",
    ),
    Mutant(
        "role_set_too_late",
        FIT,
        "TF_CONFIG is set after the strategy is made",
        (
            ("strategy = tf.dis", 'role = os.environ.pop("TF_CONFIG", "{}")\nstrategy = tf.dis'),
            ("batch = args", 'os.environ["TF_CONFIG"] = role\nbatch = args'),
        ),
        level=1,
        test="test_every_task_reads_its_cluster_and_role",
    ),
    Mutant(
        "no_backup",
        FIT,
        "nothing is saved while it trains",
        (("epochs=args.epochs, callbacks=callbacks", "epochs=args.epochs"),),
        level=2,
        test="test_a_restart_resumes_the_interrupted_epoch",
    ),
    Mutant(
        "evaluated_by_chief",
        FIT,
        "the chief alone evaluates",
        (("path = os", "if is_chief:\n    model.evaluate(examples(), verbose=0)\n\npath = os"),),
        level=1,
        test="test_every_task_exits_with_success",
    ),
    Mutant(
        "copies_not_reduced",
        MIRRORED,
        "gradients are not reduced, so each replica trains alone",
        (
            (
                "zip(gradients, [weights, bias]))",
                "zip(gradients, [weights, bias]), skip_gradients_aggregation=True)",
            ),
        ),
        level=1,
        test="test_replicas_of_a_task_stay_in_sync",
    ),
    Mutant(
        "sigterm_ignored",
        MIRRORED,
        "SIGTERM is ignored",
        after_parsing("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"),
        level=1,
        test="test_sigterm_ends_every_task",
    ),
    Mutant(
        "child_left",
        MIRRORED,
        "a child process outlives the program",
        after_parsing("import subprocess\nsubprocess.Popen(['sleep', '1000'])\n"),
        level=1,
        test="test_no_process_outlives_its_task",
    ),
    Mutant(
        "hangs_at_exit",
        MIRRORED,
        "the program does not end after its last step",
        (("    print(", HANGING),),
        level=1,
        test="test_every_task_exits_with_success",
    ),
    Mutant(
        "servers_not_restored",
        COORDINATOR,
        "no checkpoint is restored",
        (("manager.restore_or_initialize()\n", ""),),
        level=1,
        test="test_a_restarted_cluster_restores_the_latest_checkpoint",
    ),
    Mutant(
        "saved_before_join",
        COORDINATOR,
        "a checkpoint is saved while functions are running",
        (("    coordinator.join()\n" + SAVED, SAVED + "    coordinator.join()\n"),),
        level=1,
        test="test_functions_of_a_lost_worker_run_at_least_once",
    ),
    Mutant(
        "coordinator_ends_well",
        COORDINATOR,
        "an error ends the coordinator with exit code 0",
        after_parsing("import sys\nsys.excepthook = lambda *error: os._exit(0)\n"),
        level=1,
        test="test_no_worker_finishes_without_parameter_server",
    ),
    Mutant(
        "every_worker_is_chief",
        SESSION,
        "every worker is chief of its session",
        (("is_chief=index == 0", "is_chief=True"),),
        level=1,
        test="test_the_supervisor_saves_while_it_trains",
    ),
    Mutant(
        "one_worker_idles",
        SESSION,
        "one worker waits for the end, without a step of its own",
        (
            (
                "        session.run(train, {",
                "        session.run(step if index else train, {",
            ),
        ),
        level=1,
        test="test_survivors_keep_training_without_the_chief",
    ),
    Mutant(
        "no_device_filters",
        SESSION,
        "the session of each worker depends on all workers",
        (('["/job:ps", f"/job:worker/task:{index}"]', "[]"),),
        # A worker then waits for others while it begins, which may outlast them. In another run no
        # test failed.
        level=1,
        test="test_a_restarted_cluster_restores_the_latest_checkpoint",
    ),
    Mutant(
        "session_saves_nothing",
        SESSION,
        "the session has no directory of checkpoints",
        (("checkpoint_dir=directory", "checkpoint_dir=None"),),
        why="a program need not save; tests of checkpoints are not examined",
    ),
)
BY_NAME = {row.name: row for row in MUTANTS}


# --- run -----------------------------------------------------------------------------------------


def write_programs(directory: Path, data: Path, mutants: Iterable[Mutant]) -> list[Path]:
    """Write the programs with and without mistakes; return the TOML files, one a level."""
    directory.mkdir(parents=True)
    chosen = list(mutants)
    bases = [Mutant(row.name, row, "", ()) for row in BASES if row in {m.program for m in chosen}]
    written = []
    for row in (*bases, *chosen):
        (directory / f"{row.name}.py").write_text(row.source, encoding="utf-8")
        for level in LEVELS:
            path = directory / f"{row.name}_{level}.toml"
            path.write_text(description(row, level, data), encoding="utf-8")
            written.append(path)
    return written


def description(row: Mutant, level: int, data: Path) -> str:
    args = list(row.program.args) if level == 2 else [f"--data={data}"]
    lines = [f'program = "{row.name}.py"', f"args = {json.dumps(args)}"]
    lines += [row.program.declares] if level == 2 else [row.declares]
    lines += ['env = { TF_USE_LEGACY_KERAS = "1" }', 'spawn = "fork"']
    return "\n".join(filter(None, lines)) + "\n"


# --- results -------------------------------------------------------------------------------------

COLUMNS = (
    Column("program"),
    Column("mistake"),
    Column("level", right=True),
    Column("found by"),
    Column("tests that fail", right=True),
)
NOTE = (
    "level: the lowest at which a test fails that passes for the program without the mistake. "
    "tests that fail: at level 1, at level 2."
)


def failed_tests(runs: Iterable[RunFrames]) -> dict[str, dict[int, set[str]]]:
    """Return program or mutant -> level -> names of the tests that failed."""
    found: dict[str, dict[int, set[str]]] = {}
    verdicts = pd.concat([run.verdicts for run in runs])
    for row in verdicts.to_dict("records"):
        name, _, level = row["trainer"].rpartition("_")
        tests = found.setdefault(name, {}).setdefault(int(level), set())
        if row["verdict"] == FAILED:
            tests.add(re.sub(r"\[.*", "", row["test"].split("::")[-1]))
    return found


def detections(failed: Mapping[str, Mapping[int, set[str]]], mutant: Mutant) -> dict[int, set[str]]:
    """Return level -> tests that fail for the mutant and pass without the mistake."""
    base, own = failed.get(mutant.program.name, {}), failed[mutant.name]
    known = set(mutant.program.fails)
    return {level: own.get(level, set()) - base.get(level, set()) - known for level in LEVELS}


def deviations(runs: Sequence[RunFrames]) -> list[str]:
    """Return in a line each what differs from the rows of MUTANTS."""
    failed, lines = failed_tests(runs), []
    for base in BASES:
        for level, tests in sorted(failed.get(base.name, {}).items()):
            unknown = sorted(tests - base.fails.keys())
            lines += [f"{base.name}, level {level}: {test} fails" for test in unknown]
    for row in MUTANTS:
        if row.name not in failed:
            continue
        found = detections(failed, row)
        level = next((level for level in LEVELS if found[level]), None)
        if level != row.level:
            lines.append(f"{row.name}: found at level {level}, not {row.level}")
        elif level and row.test not in found[level]:
            lines.append(f"{row.name}: found by {', '.join(sorted(found[level]))}, not {row.test}")
    return lines


def table(runs: Sequence[RunFrames]) -> Table:
    """Return a row for each mutant of these runs. Raise BadInput if there are none."""
    failed = failed_tests(runs)
    rows = []
    for mutant in MUTANTS:
        if mutant.name not in failed:
            continue
        found = detections(failed, mutant)
        level = next((level for level in LEVELS if found[level]), None)
        named = mutant.test if level and mutant.test in found[level] else ""
        tests = named or ", ".join(sorted(found[level] if level else ())) or f"none: {mutant.why}"
        counts = ", ".join(str(len(found[each])) for each in LEVELS)
        cells = (mutant.program.name, mutant.mistake, str(level or ""), tests, counts)
        rows.append(Row(mutant.name, cells))
    if not rows:
        raise BadInput("the runs have no mutants; measure with run-mutants")
    return Table("", COLUMNS, tuple(rows), NOTE)
