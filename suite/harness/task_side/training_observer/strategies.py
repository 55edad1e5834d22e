"""The cluster as the program's strategy sees it, or as its environment describes it."""

import json
import os
from typing import Any, Dict

# Names of what programs make, as TensorFlow's documents call them; "" for none of these.
MULTI_WORKER, MIRRORED = "MultiWorkerMirroredStrategy", "MirroredStrategy"
PARAMETER_SERVER, MESH = "ParameterServerStrategy", "Mesh"
ALONE: Dict[str, Any] = {
    "cluster": {},
    "workers": 1,
    "chief": True,
    "backend": "none",
    "replicas": 1,
}


def after_collective_created(observer, call):
    """Report MultiWorkerMirroredStrategy; its servers are up, all workers have joined."""
    extended = call.args[0]
    spec = getattr(extended, "_cluster_spec", None)
    cluster = spec.as_dict() if spec else {}
    observer.join(
        cluster=cluster,
        workers=getattr(extended, "_num_workers", 1),
        chief=bool(getattr(extended, "_is_chief", True)) and not is_evaluator(),
        backend=extended._communication_options.implementation.value.lower(),
        replicas=extended._num_replicas_in_sync,
        strategy=MULTI_WORKER,
    )


def is_evaluator():
    """Return True for a task that TF_CONFIG calls evaluator; its strategy is a cluster of one."""
    _, task = read_tf_config()
    return task.get("type") == "evaluator"


def after_mirrored_created(observer, call):
    replicas = call.args[0]._num_replicas_in_sync
    observer.join(**dict(ALONE, replicas=replicas, strategy=MIRRORED))


def after_parameter_server_created(observer, call):
    strategy = call.args[0]
    observer.coordinator = strategy
    cluster = strategy._cluster_resolver.cluster_spec().as_dict()
    observer.join(
        cluster=cluster,
        workers=len(cluster.get("worker", ())),
        chief=True,
        backend="none",
        replicas=strategy.num_replicas_in_sync,
        strategy=PARAMETER_SERVER,
    )


def after_server_created(observer, call):
    """Report a server of a parameter server cluster, of TensorFlow 1 or of a coordinator."""
    definition = call.args[0].server_def
    cluster = {}
    for job in definition.cluster.job:
        cluster[job.name] = [job.tasks[index] for index in sorted(job.tasks)]
    if "worker" in cluster:
        task = {"type": definition.job_name, "index": definition.task_index}
        observer.join(**role_in(cluster, task))


def after_mesh_created(observer, call):
    """Report a mesh of DTensor; the devices of its first dimension are the replicas."""
    replicas = call.result.dim_size(call.result.dim_names[0])
    observer.join(**dict(role_from_environment(), replicas=replicas, strategy=MESH))


def role_from_environment():
    """Return the fields of `joined` that TF_CONFIG or DTENSOR_JOBS describe, else of one task."""
    clients = [a for a in os.environ.get("DTENSOR_JOBS", "").split(",") if a]
    if clients:
        job = os.environ.get("DTENSOR_JOB_NAME", "worker")
        chief = os.environ.get("DTENSOR_CLIENT_ID", "0") == "0"
        return dict(ALONE, cluster={job: clients}, workers=len(clients), chief=chief)
    return role_in(*read_tf_config())


def read_tf_config():
    """Return the cluster and the task of TF_CONFIG.

    Both are {} if it is invalid: TensorFlow is to refuse that, not the observer.
    """
    try:
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
        cluster, task = (dict(config.get(key) or {}) for key in ("cluster", "task"))
        sum(map(len, cluster.values()))  # a TypeError, if a job has no addresses
        return cluster, task
    except (ValueError, AttributeError, TypeError):
        return {}, {}


def role_in(cluster, task):
    if not cluster:
        return ALONE
    training = ("worker",) if cluster.get("ps") else ("chief", "worker")
    workers = sum(len(cluster.get(job, ())) for job in training)
    first = task.get("type") == "worker" and task.get("index") == 0
    chief = task.get("type") == "chief" or (first and not cluster.get("chief"))
    return dict(ALONE, cluster=cluster, workers=workers, chief=chief)
