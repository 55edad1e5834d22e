"""What each reader of TF_CONFIG makes of it: its role for this task, or the error that it raises.

The rules are those of TensorFlow's multi_worker_util.py, collective_all_reduce_strategy.py,
parameter_server_strategy_v2.py, remote.py and mirrored_strategy.py, and of run_config.py in
tensorflow_estimator. Each outcome was tried with TensorFlow 2.15 and 2.21.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from reports.core.text import plural
from suite.doctor.tf_config import Cluster, Config, Refused
from suite.harness.core.versions import version_in
from suite.harness.tables.toml_schema import did_you_mean

MULTI_WORKER = "MultiWorkerMirroredStrategy"
PARAMETER_SERVER = "ParameterServerStrategy"
ESTIMATOR = "Estimator (RunConfig)"
MIRRORED = "MirroredStrategy"
OTHERS = "DTensor, fit without a strategy"

TRAINS, SERVES, ALONE = "trains", "serves", "alone"
RAISES, ABORTS, WAITS, ABSENT = "raises", "aborts", "waits forever", "absent"
FAILURES = (RAISES, ABORTS, WAITS)

JOBS = ("chief", "worker", "evaluator", "ps")
ESTIMATOR_REMOVED = "2.16.0.dev0"
EVALUATOR = "evaluator"


@dataclass(frozen=True)
class Reading:
    """The result of one reader; `text` is the reason, or the error that TensorFlow raises."""

    reader: str
    outcome: str
    task: str = ""  # as the reader sees it: "worker/0"
    chief: str = ""  # which task is chief
    workers: int = 0
    text: str = ""
    hint: str = ""
    warning: str = ""  # what is surprising although it works

    @property
    def sentence(self) -> str:
        """Return the result in words, with the role of this task."""
        role = ""
        if self.task:
            role = f"this task is {self.task}"
            chief = "the chief" if self.task == self.chief else f"the chief is {self.chief}"
            role += f", {chief}" if self.chief else ""
        return "; ".join(filter(None, (self.result, role)))

    @property
    def result(self) -> str:
        """Return the outcome with its reason."""
        if self.outcome == RAISES:
            return f"raises {self.text}"
        workers = f" with {plural(self.workers, 'worker')}" if self.outcome == TRAINS else ""
        return f"{self.outcome}{workers}: {self.text}".removesuffix(": ")

    def to_dict(self) -> dict[str, str | int]:
        return dict(vars(self))


def readings(config: Config, tensorflow: str) -> list[Reading]:
    """Return the result of each reader; `tensorflow` is a version, "" if it is not installed."""
    found = []
    for name, read in READERS.items():
        if name == ESTIMATOR and tensorflow and version_in(tensorflow, f">={ESTIMATOR_REMOVED}"):
            text = "tf.estimator was removed in TensorFlow 2.16"
            found.append(Reading(name, ABSENT, text=text))
            continue
        try:
            found.append(read(config))
        except Refused as error:
            found.append(Reading(name, RAISES, text=str(error), hint=_hint(config, name)))
    return found


def intended(config: Config) -> tuple[str, str]:
    """Return the reader that such a cluster is for, with the reason; "" if there is no cluster."""
    try:
        cluster = config.cluster
    except Refused:
        return "", ""
    if not cluster:
        return "", ""
    if "ps" in cluster:
        return PARAMETER_SERVER, "it has a `ps` job"
    if "master" in cluster:
        return ESTIMATOR, "it has a `master` job"
    return MULTI_WORKER, "it has no `ps` job"


def multi_worker(config: Config) -> Reading:
    if not config.cluster:
        return _alone(MULTI_WORKER, "a cluster of one, because there is no `cluster`")
    cluster, job, index = config.cluster, config.job, config.index
    if job is None or index is None:
        raise Refused(
            "ValueError: When `cluster_spec` is given, you must also specify `task_type` and "
            "`task_id`."
        )
    _validate(cluster, job, index)
    if job == "ps":
        raise Refused("ValueError: There is no id for task_type 'ps'")
    if job == EVALUATOR and EVALUATOR not in cluster:
        raise Refused("KeyError: 'evaluator'")
    if index < 0:
        raise Refused(f"InvalidArgumentError: Invalid device filter: /job:{job}/task:{index}")
    if job == EVALUATOR:
        reading = _alone(MULTI_WORKER, "an evaluator is a cluster of one, and its own chief")
        return replace(reading, task="evaluator/0", chief="evaluator/0")
    chief = "chief/0" if "chief" in cluster else "worker/0"
    workers = len(cluster.get("chief", {})) + len(cluster.get("worker", {}))
    reading = Reading(MULTI_WORKER, TRAINS, f"{job}/{index}", chief, workers)
    for leader in ("ps", "chief"):
        if leader in cluster and not cluster[leader]:
            text = f"job `{leader}` has no task, and would lead the cluster"
            return replace(reading, outcome=ABORTS, text=text, hint=f"remove `{leader}`")
    if "ps" in cluster:
        text = "ps/0 would lead its coordination service, and a parameter server does not"
        hint = "remove `ps` from the cluster, or train with ParameterServerStrategy"
        return replace(reading, outcome=WAITS, text=text, hint=hint)
    if EVALUATOR in cluster:
        warning = (
            "an evaluator is in the cluster: MultiWorkerMirroredStrategy ignores it, "
            "ParameterServerStrategy would wait for it forever"
        )
        return replace(reading, warning=warning)
    return reading


def parameter_server(config: Config) -> Reading:
    if not config.cluster:
        raise Refused(
            "ValueError: Cluster spec must be non-empty in "
            "`tf.distribute.cluster_resolver.ClusterResolver`."
        )
    cluster, job, index = config.cluster, config.job, config.index
    _validate(cluster, job, index)
    for needed in ("ps", "worker"):
        if not cluster.get(needed):
            raise Refused(f"ValueError: There must be at least one {needed}.")
    task = "" if job is None else f"{job}/{index}"
    reading = Reading(PARAMETER_SERVER, TRAINS, task, "chief/0", len(cluster["worker"]))
    if "chief" not in cluster:
        warning = (
            "the cluster has no `chief`: the coordinator adds itself at localhost and a free port, "
            "which is right for servers on the same machine only"
        )
        reading = replace(reading, warning=warning)
    if EVALUATOR in cluster:
        text = "an evaluator is in the cluster, and the coordinator waits for a server there"
        hint = "remove `evaluator` from `cluster`; its own task keeps the type `evaluator`"
        return replace(reading, outcome=WAITS, text=text, hint=hint)
    if job in ("worker", "ps"):
        text = "must start tf.distribute.Server; only the coordinator creates the strategy"
        return replace(reading, outcome=SERVES, text=text)
    if job == EVALUATOR:
        text = "must not create the strategy; it follows the checkpoints"
        return replace(reading, outcome=ALONE, text=text)
    if job is None:
        warning = "without a `task` no program knows its role: each one would be the coordinator"
        return replace(reading, warning=warning)
    return replace(reading, text="coordinates, and trains nothing itself")


def estimator(config: Config) -> Reading:
    """Read as RunConfig without a strategy; with one, the strategy's rules apply."""
    if not config.is_object:
        kind = type(config.value).__name__  # raises Refused for invalid JSON
        raise Refused(f"AttributeError: '{kind}' object has no attribute 'get'")
    cluster, job, index = config.cluster, config.job, config.index
    if not cluster:
        if job not in (None, "worker"):
            raise Refused(
                'ValueError: If "cluster" is not set in TF_CONFIG, task type must be WORKER.'
            )
        if index not in (None, 0):
            raise Refused('ValueError: If "cluster" is not set in TF_CONFIG, task index must be 0.')
        return _alone(ESTIMATOR, "local, because there is no `cluster`")
    chief = "master" if "master" in cluster else "chief"
    if {"master", "chief"} <= cluster.keys():
        raise Refused(
            "ValueError: If `master` node exists in `cluster`, job `chief` is not supported."
        )
    if chief not in cluster:
        raise Refused(
            'ValueError: If "cluster" is set in TF_CONFIG, it must have one "chief" node.'
        )
    if len(cluster[chief]) > 1:
        raise Refused(f'ValueError: The "cluster" in TF_CONFIG must have only one "{chief}" node.')
    for name, value in (("type", job), ("index", index)):
        if value is None:
            raise Refused(f'ValueError: If "cluster" is set in TF_CONFIG, task {name} must be set.')
    assert job is not None
    assert index is not None
    if index < 0:
        raise Refused("ValueError: Task index must be non-negative number.")
    if job == EVALUATOR and chief == "master":
        raise Refused(
            "ValueError: If `master` node exists in `cluster`, task_type `evaluator` is not "
            "supported."
        )
    if job != EVALUATOR and job not in cluster:
        raise Refused(f"ValueError: {job} is not a valid task_type in the cluster_spec")
    if job != EVALUATOR and index >= len(cluster[job]):
        raise Refused(
            f"ValueError: {index} is not a valid task_id for task_type {job} in the cluster_spec"
        )
    workers = len(cluster.get("worker", {})) + len(cluster[chief])
    reading = Reading(ESTIMATOR, TRAINS, f"{job}/{index}", f"{chief}/0", workers)
    if job == EVALUATOR:
        return replace(reading, outcome=ALONE, text="evaluates the checkpoints on its own")
    return replace(reading, outcome=SERVES if job == "ps" else TRAINS)


def mirrored(config: Config) -> Reading:
    _ = config.cluster  # logged, then ignored; what is no cluster raises all the same
    return _alone(MIRRORED, "ignores TF_CONFIG, and uses the devices of this process")


def others(config: Config) -> Reading:  # noqa: ARG001 - as the other readers
    return _alone(OTHERS, "TF_CONFIG is not read")


READERS: dict[str, Callable[[Config], Reading]] = {
    MULTI_WORKER: multi_worker,
    PARAMETER_SERVER: parameter_server,
    ESTIMATOR: estimator,
    MIRRORED: mirrored,
    OTHERS: others,
}


def _alone(reader: str, text: str) -> Reading:
    return Reading(reader, ALONE, workers=1, text=text)


def _validate(cluster: Cluster, job: str | None, index: int | None) -> None:
    """Raise Refused where multi_worker_util._validate_cluster_spec raises ValueError."""
    unknown = [each for each in cluster if each not in JOBS]
    if unknown:
        listed = ", ".join(map(repr, unknown))
        raise Refused(f"ValueError: Disallowed task type found in cluster spec: {listed}")
    if job is not None and job not in JOBS:
        raise Refused(f"ValueError: Unrecognized task_type: {job}, valid task types are: {JOBS}")
    if job and job not in cluster and job != EVALUATOR:
        raise Refused(f"ValueError: `task_type` {job!r} not found in cluster_spec.")
    for single in ("chief", EVALUATOR):
        if len(cluster.get(single, {})) > 1:
            raise Refused(f"ValueError: There must be at most one '{single}' job.")
    if job is not None and job in cluster:
        if index is None:
            raise Refused("TypeError: '>=' not supported between instances of 'NoneType' and 'int'")
        if index >= len(cluster[job]):
            raise Refused(f"ValueError: The `task_id` {index} exceeds the maximum id of {job}.")


def _hint(config: Config, reader: str) -> str:
    """Return what would be right instead of what the reader refuses; "" if that is obvious."""
    try:
        cluster, job, index = config.cluster, config.job, config.index
    except Refused:
        return ""
    if not cluster:
        return ""
    known = (*JOBS, "master") if reader == ESTIMATOR else JOBS
    for name in (*cluster, *filter(None, [job])):
        if name not in known:
            near = did_you_mean(name, known) or did_you_mean(name.lower(), known)
            return f"jobs are named {', '.join(known)}, in lower case{near}"
    for single in ("chief", EVALUATOR):
        if len(cluster.get(single, {})) > 1:
            return f"leave one task in `{single}`; further ones can be workers"
    if job is None or index is None:
        return 'add `task`, different on each machine: {"type": "worker", "index": 0}'
    if job == EVALUATOR and reader == MULTI_WORKER:
        return (
            "do not create the strategy in the evaluator (SidecarEvaluator needs none); "
            "Estimator's evaluator does, and then belongs to the cluster"
        )
    if job not in cluster:
        return f"the type of the task is one of the cluster's jobs: {', '.join(cluster)}"
    if not 0 <= index < len(cluster[job]):
        indices = f"0 to {len(cluster[job]) - 1}" if cluster[job] else "none"
        return f"an index counts within its job: `{job}` has {indices}"
    if job == "ps" and reader == MULTI_WORKER:
        return "this strategy has no parameter servers: use ParameterServerStrategy"
    if reader == PARAMETER_SERVER:
        return 'a cluster for it has "chief": one address, and "ps" and "worker" with at least one'
    if reader == ESTIMATOR:
        return 'Estimator without a strategy needs "chief": one address, which trains, too'
    return ""
