"""The role of this process in its cluster, from TF_CONFIG, host-list flags or DTENSOR_JOBS.

Invalid settings are rejected here, before a server starts that would wait forever. Standard library
only, Python 3.8 syntax.
"""

import json
import os
from dataclasses import dataclass
from typing import Dict, List, Tuple

from reference_trainers.support.workload import BadInput


@dataclass(frozen=True)
class Role:
    """Name of this task ("worker/0"), its cluster, and the tasks that train, in order.

    An evaluator is outside the cluster and trains nothing.
    """

    task: str
    index: int
    chief: bool
    cluster: Dict[str, List[str]]
    workers: Tuple[str, ...]


EVALUATOR = "evaluator"  # follows the checkpoints of a cluster without being a member
ALONE = Role("worker/0", 0, True, {}, ("worker/0",))


def role_from_tf_config(known=("chief", "worker")):
    """Return this task's role from TF_CONFIG; a cluster of one if TF_CONFIG is not set.

    The chief is the `chief` job if there is one, else worker 0. Raise BadInput if TF_CONFIG is not
    JSON, or names a job or an index that its own cluster does not have.
    """
    text = os.environ.get("TF_CONFIG", "")
    if not text:
        return ALONE
    try:
        config = json.loads(text)
    except ValueError as error:
        raise BadInput("TF_CONFIG is not JSON: %s" % error) from error
    if not isinstance(config, dict) or not isinstance(config.get("cluster"), dict):
        raise BadInput("TF_CONFIG has no `cluster`")
    cluster, task = config["cluster"], config.get("task")
    if not isinstance(task, dict) or "type" not in task or "index" not in task:
        raise BadInput("TF_CONFIG has no `task` with a `type` and an `index`")
    job, index = task["type"], task["index"]
    if job == EVALUATOR:
        raise BadInput("TF_CONFIG: this trainer has no `evaluator`; evaluate with --evaluate")
    if EVALUATOR in cluster:
        raise BadInput("TF_CONFIG: an `evaluator` is no member of the cluster")
    for name in [*cluster, job]:
        if name not in known:
            raise BadInput("TF_CONFIG: unknown job `%s`; known: %s" % (name, ", ".join(known)))
        addresses = cluster.get(name)
        if not isinstance(addresses, list) or not all(isinstance(a, str) for a in addresses):
            raise BadInput("TF_CONFIG: the cluster has no list of addresses for job `%s`" % name)
    if len(cluster.get("chief", ())) > 1:
        raise BadInput("TF_CONFIG: there can be one chief only")
    if type(index) is not int or not 0 <= index < len(cluster[job]):
        raise BadInput(
            "TF_CONFIG: index %r is out of range; job `%s` has %d tasks"
            % (index, job, len(cluster[job]))
        )
    training = ("worker",) if cluster.get("ps") else ("chief", "worker")  # ps: chief coordinates
    workers = tuple(
        "%s/%d" % (name, i) for name in training for i in range(len(cluster.get(name, ())))
    )
    chief = job == "chief" or (job == "worker" and index == 0 and not cluster.get("chief"))
    return Role("%s/%d" % (job, index), index, chief, cluster, workers)


def add_host_flags(parser):
    for flag in ("ps_hosts", "worker_hosts", "job_name"):
        parser.add_argument("--" + flag, default="worker" if flag == "job_name" else "")
    parser.add_argument("--task_index", type=int, default=0)


def role_from_hosts(args):
    """Return the role that --ps_hosts, --worker_hosts, --job_name and --task_index name.

    Worker 0 is the chief. Raise BadInput if a list is empty or the index is out of range.
    """
    cluster = {}
    for job in ("ps", "worker"):
        cluster[job] = [host for host in getattr(args, job + "_hosts").split(",") if host]
        if not cluster[job]:
            raise BadInput("--%s_hosts: name at least one host:port" % job)
    job, index = args.job_name, args.task_index
    if index >= len(cluster[job]):
        raise BadInput(
            "--task_index: %d is out of range; job `%s` has %d tasks"
            % (index, job, len(cluster[job]))
        )
    workers = tuple("worker/%d" % i for i in range(len(cluster["worker"])))
    return Role("%s/%d" % (job, index), index, job == "worker" and index == 0, cluster, workers)


def role_from_dtensor():
    """Return this client's role from DTENSOR_JOBS, DTENSOR_CLIENT_ID and DTENSOR_JOB_NAME.

    Without DTENSOR_JOBS there is one client. Client 0 is the chief. Raise BadInput for an id that
    is not a whole number or has no address, and for a DTENSOR_NUM_CLIENTS (which TensorFlow
    ignores) that differs from the number of addresses.
    """
    if "DTENSOR_JOBS" not in os.environ:
        return ALONE
    addresses = [a for a in os.environ["DTENSOR_JOBS"].split(",") if a]
    job = os.environ.get("DTENSOR_JOB_NAME", "worker" if len(addresses) > 1 else "localhost")
    numbers = {}
    for name, default in (("DTENSOR_CLIENT_ID", 0), ("DTENSOR_NUM_CLIENTS", len(addresses))):
        text = os.environ.get(name, str(default))
        if not text.isdigit():
            raise BadInput("%s is not a whole number: %r" % (name, text))
        numbers[name] = int(text)
    index, clients = numbers["DTENSOR_CLIENT_ID"], numbers["DTENSOR_NUM_CLIENTS"]
    if clients != len(addresses) or index >= clients:
        raise BadInput(
            "DTENSOR_JOBS has %d addresses; DTENSOR_NUM_CLIENTS %d and DTENSOR_CLIENT_ID %d do not "
            "fit" % (len(addresses), clients, index)
        )
    workers = tuple("%s/%d" % (job, i) for i in range(clients))
    return Role(workers[index], index, index == 0, {job: addresses}, workers)
