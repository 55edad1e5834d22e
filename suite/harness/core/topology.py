"""Tasks of a cluster, and the role of each: jobs and counts to roles. Pure functions.

A task is named "job/index". A single process is a cluster without jobs whose only task is
"worker/0", so that other code can treat it as any other cluster.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from suite.harness.core.errors import BadInput

ALONE = "worker/0"  # the task of a single process
# Jobs with at most one task; the others may have any number.
SINGLE = ("chief", "evaluator")
JOBS = ("chief", "worker", "ps", "evaluator")

# Variables that define a task's role. The launcher does not pass on inherited ones: a TF_CONFIG
# left over in a shell would turn a single process into a cluster that waits forever.
ROLE_VARIABLES = (
    "TF_CONFIG",
    "DTENSOR_CLIENT_ID",
    "DTENSOR_NUM_CLIENTS",
    "DTENSOR_JOB_NAME",
    "DTENSOR_JOBS",
)

Addresses = Mapping[str, str]  # task -> "host:port"


@dataclass(frozen=True)
class Topology:
    """Jobs with their numbers of tasks, in order; () is a single process."""

    jobs: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        """Raise BadInput, in one line, for jobs that cannot form a cluster."""
        names = [job for job, _ in self.jobs]
        for job, count in self.jobs:
            if job not in JOBS:
                raise BadInput(f"unknown job {job!r}; choose from {', '.join(JOBS)}")
            if count < 1:
                raise BadInput(f"a cluster needs at least 1 task of job {job}, not {count}")
            if job in SINGLE and count > 1:
                raise BadInput(f"a cluster has one {job}, not {count}")
        if len(set(names)) != len(names):
            raise BadInput(f"a job is named twice: {', '.join(names)}")
        if self.jobs and not self.workers:
            raise BadInput(f"nothing trains in a cluster of {', '.join(names)}")

    @property
    def tasks(self) -> tuple[str, ...]:
        """Return all tasks, job by job."""
        if not self.jobs:
            return (ALONE,)
        return tuple(f"{job}/{index}" for job, count in self.jobs for index in range(count))

    @property
    def training_jobs(self) -> tuple[str, ...]:
        """Return the jobs that train; a chief trains like a worker, but with ps it coordinates."""
        return ("worker",) if "ps" in dict(self.jobs) else ("chief", "worker")

    @property
    def workers(self) -> tuple[str, ...]:
        """Return the tasks that train, in order, the chief first."""
        training = [task for task in self.tasks if task.split("/")[0] in self.training_jobs]
        return tuple(sorted(training, key=lambda task: task.split("/")[0] != "chief"))

    @property
    def drivers(self) -> tuple[str, ...]:
        """Return the tasks that run the training loop and report its events."""
        return drivers(self.tasks, self.workers)

    def with_workers(self, count: int) -> Topology:
        """Return the same cluster with that many training tasks; a single process is unchanged."""
        if count < 1:
            raise BadInput(f"a cluster needs at least 1 worker, not {count}")
        if not self.jobs:
            return self
        chiefs = sum(task.startswith("chief/") for task in self.workers)
        left = max(count - chiefs, 0)
        jobs = [(job, left if job == "worker" else n) for job, n in self.jobs]
        if left and "worker" not in dict(self.jobs):
            jobs.append(("worker", left))
        return Topology(tuple((job, n) for job, n in jobs if n))

    def cluster(self, addresses: Addresses) -> dict[str, list[str]]:
        """Return job -> addresses, the same for every task; {} for a single process.

        An evaluator is no member: it reads checkpoints, and the other tasks must not wait for it.
        """
        spec: dict[str, list[str]] = {}
        for task in self.tasks if self.jobs else ():
            job = task.split("/")[0]
            if job != "evaluator":
                spec.setdefault(job, []).append(addresses[task])
        return spec

    def environment(self, role: str, task: str, addresses: Addresses) -> dict[str, str]:
        """Return the variables that define the role of `task`, if the trainer reads variables."""
        return self._role_arguments(role, task, addresses)[0]

    def arguments(self, role: str, task: str, addresses: Addresses) -> list[str]:
        """Return the flags that define the role of `task`, if the trainer reads flags."""
        return self._role_arguments(role, task, addresses)[1]

    def _role_arguments(
        self, role: str, task: str, addresses: Addresses
    ) -> tuple[dict[str, str], list[str]]:
        if role not in ROLES:
            raise ValueError(f"unknown role {role!r}; choose from {', '.join(ROLES)}")
        if task not in self.tasks:
            raise ValueError(f"{task} is not in this cluster: {', '.join(self.tasks)}")
        if not self.jobs:
            return {}, []
        job, index = task.split("/")
        return ROLES[role](self.cluster(addresses), job, index)


def drivers(tasks: tuple[str, ...], workers: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tasks that run the training loop, in order, the chief first.

    These are the workers. A chief that does not train itself is the only driver, and the workers
    are servers that execute its requests.
    """
    coordinators = tuple(t for t in tasks if t.startswith("chief/") and t not in workers)
    return coordinators or workers


Cluster = Mapping[str, list[str]]
RoleArguments = tuple[dict[str, str], list[str]]


def _nothing(*_: object) -> RoleArguments:
    return {}, []


def _tf_config(cluster: Cluster, job: str, index: str) -> RoleArguments:
    config = {"cluster": cluster, "task": {"type": job, "index": int(index)}}
    return {"TF_CONFIG": json.dumps(config)}, []


def _host_flags(cluster: Cluster, job: str, index: str) -> RoleArguments:
    hosts = [f"--{name}_hosts={','.join(members)}" for name, members in cluster.items()]
    return {}, [*hosts, f"--job_name={job}", f"--task_index={index}"]


def _dtensor(cluster: Cluster, job: str, index: str) -> RoleArguments:
    """Return variables for tensorflow/dtensor/python/config.py; all clients are in one job.

    DTENSOR_NUM_CLIENTS is not set: that file says that it was removed, but with it TensorFlow 2.12
    counts the clients twice and fails in the first all-reduce.
    """
    clients = cluster[job]
    return {
        "DTENSOR_CLIENT_ID": index,
        "DTENSOR_JOB_NAME": job,
        "DTENSOR_JOBS": ",".join(clients),
    }, []


ROLES: Mapping[str, Callable[[Cluster, str, str], RoleArguments]] = {
    "none": _nothing,
    "tf_config": _tf_config,
    "host_flags": _host_flags,
    "dtensor": _dtensor,
}
