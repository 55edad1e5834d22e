"""Check the results of the programs in suite/programs: promises that no trainer covers."""

from __future__ import annotations

from suite.harness.checks.assertions import (
    check,
    close,
    equal,
    flag_value,
    last_attempt,
    only,
    require,
    same,
    some,
    weights,
)
from suite.harness.core.history import Run


@check
def files_sharded(run: Run) -> None:
    """Require that each file is read by one worker only, and completely.

    Record r is in file r // records.
    """
    records, files = flag_value(run, "records"), flag_value(run, "files")
    reader: dict[int, str] = {}
    for task in run.workers:
        seen = {i for e in some(f"input of {task}", run.of("input", task)) for i in e["ids"]}
        own = {record // records for record in seen}
        whole = {f * records + r for f in own for r in range(records)}
        require(seen == whole, f"{task} read parts of files only; missing {sorted(whole - seen)}")
        for file in own:
            other = reader.setdefault(file, task)
            require(other == task, f"file {file} was read by {other} and by {task}")
    equal("files that were read", sorted(reader), list(range(files)))


@check
def too_few_files_refused(run: Run) -> None:
    """Require that all workers fail with too few files, and that TensorFlow states the reason."""
    for task in run.workers:
        exited = only(f"end of {task}", run.of("exited", task))
        require(exited["code"] != 0, f"{task} ended as if it had had files to read")
    errors = [e["error"] for e in some("refusal", run.of("refused"))]
    said = [text for text in errors if "FILE" in text and "not enough" in text]
    require(said, f"no error says that there are not enough files: {errors}")


@check
def outside_scope_is_not_synchronized(run: Run) -> None:
    """Require that a model from outside the scope is refused, or differs on each worker."""
    refused = {task: only(f"answer to {task}", run.of("refused", task)) for task in run.workers}
    if not all(e["error"] for e in refused.values()):
        digests = {
            task: only(f"weights of {task}", weights(run, "final", task))["digest"]
            for task in run.workers
        }
        apart = len(set(digests.values())) == len(digests)
        require(apart, f"a model from outside the scope was kept in sync: {digests}")


@check
def inside_scope_is_synchronized(run: Run) -> None:
    """Require that a model from inside the scope is the same on all workers (the control)."""
    for task in run.workers:
        equal(f"answer to {task}", only("answer", run.of("refused", task))["error"], "")
    same(
        "final weights",
        {task: only("weights", weights(run, "final", task))["digest"] for task in run.workers},
    )


@check
def program_keeps_its_signal_handler(run: Run) -> None:
    """Require that the program's handler runs on SIGTERM, without and with a strategy."""
    for task in run.workers:
        for when in ("without a strategy", "with a strategy"):
            events = [e for e in run.of("signaled", task) if e["when"] == when]
            signaled = only(f"signal to {task} {when}", events)
            named = "still names it" if signaled["installed"] else "names another"
            require(
                signaled["handled"],
                f"the handler of {task} did not run on SIGTERM {when}; signal.getsignal {named}",
            )


@check
def local_server_answers(run: Run) -> None:
    """Require that a local server answers its own process and another process.

    The other process knows only the server's grpc target.
    """
    own, other = (only(f"answer to {who}", run.of("answered", who)) for who in PROCESSES)
    target = only("address", run.of("serving"))["target"]
    require(target.startswith("grpc://"), f"the address is {target!r}, not grpc://...")
    equal("address that the other process used", other["target"], target)
    equal("answer to the other process", other["value"], own["value"])


PROCESSES = ("server/0", "client/0")


@check
def session_keeps_running(run: Run) -> None:
    """Require that none of a session's runs of a step fails."""
    error = only("answer of the session", run.of("refused"))["error"]
    require(not error, f"a run of the session failed: {error}")


@check
def fresh_gradients_are_averaged(run: Run) -> None:
    """Require that a step subtracts the mean of its fresh gradients and drops stale ones.

    Gradients and values are small whole numbers or halves, which float32 holds exactly. The rate is
    1, so the step subtracts exactly the aggregate.
    """
    value, step, gradients, stale = 0.0, 0, [], []
    for event in run.events:
        if event.name == "contributed":
            fresh = event["local_step"] >= step
            (gradients if fresh else stale).append(event["gradient"])
        elif event.name == "applied":
            equal("gradients of one step", len(gradients), flag_value(run, "replicas-to-aggregate"))
            mean = sum(gradients) / len(gradients)
            require(mean != sum(gradients), f"mean and sum of {gradients} are the same")
            wanted = value - mean
            what = f"value {value} less the mean of {gradients}, without the stale {stale}"
            equal(what, event["value"], wanted)
            equal("global step", event["global_step"], step + 1)
            value, step, gradients = event["value"], step + 1, []
    require(step > 1 and stale, f"{step} steps and {len(stale)} stale gradients show too little")


@check
def model_checkpoint_does_not_resume(run: Run, then: Run) -> None:
    """Require that the next run starts with fresh weights at step 0.

    ModelCheckpoint must have saved in the first run.
    """
    some("checkpoint", run.of("checkpoint_saved"))
    for task in run.workers:
        fresh, trained = (only(f"{w} weights", weights(run, w, task)) for w in ("initial", "epoch"))
        require(fresh["digest"] != trained["digest"], f"{task} learned nothing that could be saved")
        again = only(f"initial weights of {task}, later", weights(then, "initial", task))
        equal(f"step at which {task} began again", again["global_step"], 0)
        equal(f"weights with which {task} began again", again["digest"], fresh["digest"])


@check
def shared_backup_collides(run: Run, then: Run) -> None:
    """Require that the backup is lost when another manager saves to its directory."""
    equal("how the first run ended", only("end", run.of("collided"))["error"], "interrupted")
    restored = then.of("restored")
    failed = [e["error"] for e in then.of("collided") if e["error"]]
    found = [e["global_step"] for e in restored]
    require(failed or found == [0], f"the backup survived: resumed at {found} without an error")


@check
def separate_backup_resumes(run: Run, then: Run) -> None:
    """Require that a backup in its own directory resumes the run. This is the control."""
    equal("how the first run ended", only("end", run.of("collided"))["error"], "interrupted")
    equal("how the second run ended", only("end", then.of("collided"))["error"], "")
    step = only("`restored`", then.of("restored"))["global_step"]
    require(step > 0, f"the backup was not found: resumed at {step}")


@check
def side_evaluator_agrees(run: Run, reference: Run) -> None:
    """Require that a task outside the cluster (`reference`) measures the same.

    It must restore the final weights of the run.
    """
    task = run.drivers[0]
    own = some(f"evaluation by {task}", run.of("evaluated", task))[-1]
    other = some("evaluation outside the cluster", reference.of("evaluated"))[-1]
    equal("global step that was evaluated", other["global_step"], own["global_step"])
    restored = some("`restored` outside the cluster", reference.of("restored"))[-1]
    final = only(f"final weights of {task}", weights(run, "final", task))
    equal("weights that were evaluated", restored["digest"], final["digest"])
    for name, value in own["metrics"].items():
        close(f"{name} outside the cluster", other["metrics"][name], value, 1e-5)
    ended = reference.exit_of(reference.workers[0], last_attempt(reference, reference.workers[0]))
    require(ended and ended["code"] == 0, f"the evaluator did not end well: {ended}")


@check
def eager_execution_is_refused(run: Run) -> None:
    """Require that no task trains with eager execution on, and that the error names the cause."""
    for task in run.workers:
        error = only(f"answer to {task}", run.of("refused", task))["error"]
        require(error, f"{task} trained {len(run.of('step', task))} steps with eager execution")
        is_expected = "pickle" in error or "disable_eager_execution" in error
        require(is_expected, f"{task} was refused for another reason: {error}")


@check
def predictions_agree(run: Run) -> None:
    """Require that evaluation in one process, evaluation by a strategy and predictions agree."""
    by = {e["by"]: e for e in run.of("evaluated")}
    equal("ways to evaluate", sorted(by), ["eval_distribute", "evaluate", "predict"])
    same("global step that was evaluated", {how: e["global_step"] for how, e in by.items()})
    for how, event in by.items():
        for name, value in event["metrics"].items():
            close(f"{name} by {how}", value, by["evaluate"]["metrics"][name], 1e-5)


@check
def mode_is_required(run: Run) -> None:
    """Require that the document's EstimatorSpec is refused, even when it lacks only the mode."""
    errors = [e["error"] for e in some("answer to a specification", run.of("refused"))]
    require(all(errors), f"a specification without a mode was taken: {errors}")
    require("'mode'" in errors[-1], f"the last error does not name the mode: {errors}")


@check
def api_present_or_removed(run: Run, gone: bool) -> None:
    """Require that an API is missing where it was removed, and present everywhere else."""
    version = only("start", run.of("started"))["tensorflow"]
    error = only("answer", run.of("refused"))["error"]
    equal(f"gone in TensorFlow {version} ({error or 'found'})", bool(error), gone)
    require(not gone or "no attribute" in error, f"it is not missing, but fails: {error}")
