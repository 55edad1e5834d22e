"""Read TF_CONFIG as TensorFlow's TFConfigClusterResolver does, errors included.

The rules and messages are those of tfconfig_cluster_resolver.py and server_lib.py of TensorFlow,
read and tried in 2.15 and 2.21. TensorFlow is not imported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from suite.doctor.findings import PROBLEM, WARNING, Finding
from suite.harness.tables.toml_schema import did_you_mean

VARIABLE = "TF_CONFIG"
EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
)
# The last three are of Estimator and of launchers.
KEYS = (
    *("cluster", "task", "rpc_layer", "session_master", "eval_session_master"),
    *("environment", "job", "model_dir", "service"),
)

Cluster = Mapping[str, Mapping[int, str]]  # job -> index -> address


class Refused(Exception):
    """An error that TensorFlow raises; the message has its type: `ValueError: ...`."""


@dataclass(frozen=True)
class Config:
    """The text of TF_CONFIG; None if it is not set."""

    text: str | None

    @cached_property
    def value(self) -> Any:
        """Return the parsed JSON, {} if TF_CONFIG is not set; raise Refused if it is no JSON."""
        try:
            return json.loads(self.text if self.text is not None else "{}")
        except ValueError as error:
            raise Refused(f"JSONDecodeError: {error}") from error

    @property
    def is_object(self) -> bool:
        """Return True if the text is a JSON object."""
        try:
            return isinstance(self.value, dict)
        except Refused:
            return False

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value as the resolver does; raise Refused where the resolver fails."""
        value = self.value
        if value is None or isinstance(value, int | float):
            kind = type(value).__name__
            raise Refused(f"TypeError: argument of type '{kind}' is not iterable")
        if key not in value:
            return default
        if not isinstance(value, dict):
            raise Refused(f"TypeError: {type(value).__name__} indices must be integers")
        return value[key]

    @cached_property
    def cluster(self) -> Cluster:
        """Return the cluster; raise Refused where tf.train.ClusterSpec does."""
        given = self.get("cluster", {})
        if not isinstance(given, dict):
            raise Refused(
                "TypeError: `cluster` must be a dictionary mapping one or more job names to lists "
                "of network addresses"
            )
        found = {job: _tasks(job, tasks) for job, tasks in given.items()}
        for address in (each for tasks in found.values() for each in tasks.values()):
            if not isinstance(address, str):
                raise Refused(f"TypeError: Task address {address!r} must be bytes or unicode")
        return found

    @property
    def job(self) -> str | None:
        task = self._task("type")
        return None if task is None else str(task["type"])

    @property
    def index(self) -> int | None:
        task = self._task("index")
        if task is None:
            return None
        try:
            return int(task["index"])
        except ValueError as error:
            raise Refused(f"ValueError: {error}") from error
        except TypeError as error:
            kind = type(task["index"]).__name__
            raise Refused(f"TypeError: int() argument must be a number, not '{kind}'") from error

    def _task(self, key: str) -> Any:
        """Return the task if it has the key, else None."""
        task = self.get("task", {})
        if task is None or isinstance(task, int | float):
            kind = type(task).__name__
            raise Refused(f"TypeError: argument of type '{kind}' is not iterable")
        if key not in task:
            return None
        if not isinstance(task, dict):
            raise Refused(f"TypeError: {type(task).__name__} indices must be integers")
        return task


def _tasks(job: str, tasks: Any) -> dict[int, Any]:
    if isinstance(tasks, list):
        return dict(enumerate(tasks))
    if not isinstance(tasks, dict):
        raise Refused(
            f"TypeError: The tasks for job {job!r} must be a list or a dictionary from integers "
            "to strings."
        )
    try:
        return {int(index): address for index, address in tasks.items()}
    except ValueError as error:
        raise Refused(f"ValueError: {error}") from error


def as_dict(cluster: Cluster) -> dict[str, Any]:
    """Return the cluster as in JSON, for the report."""
    return {job: list(tasks.values()) for job, tasks in cluster.items()}


def findings(config: Config) -> list[Finding]:
    """Return what is wrong with the text itself, whichever strategy reads it."""
    if config.text is None:
        return []
    if not config.text.strip():
        text = "TF_CONFIG is set to an empty text, which every reader takes for invalid JSON"
        return [Finding(PROBLEM, text, "unset TF_CONFIG to train alone")]
    try:
        value = config.value
    except Refused as error:
        hint = f"a right one: {EXAMPLE}"
        return [Finding(PROBLEM, f"TF_CONFIG is not JSON: {str(error).split(': ', 1)[1]}", hint)]
    if not isinstance(value, dict):
        kinds = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}
        kind = kinds.get(type(value), "a number")
        text = f"TF_CONFIG is {kind}, not a JSON object"
        return [Finding(PROBLEM, text, f"a right one: {EXAMPLE}")]
    return [*_repeated(config.text), *_keys(value), *_task_findings(value)]


def _repeated(text: str) -> list[Finding]:
    """Return a finding for each key that an object has twice: json.loads keeps the last."""
    repeated: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        repeated.extend(sorted({name for name in names if names.count(name) > 1}))
        return dict(pairs)

    json.loads(text, object_pairs_hook=note)
    return [
        Finding(WARNING, f"TF_CONFIG has `{name}` more than once, and the last one counts",
                f"put all tasks of `{name}` into one list")
        for name in repeated
    ]  # fmt: skip


def _keys(value: Mapping[str, Any]) -> list[Finding]:
    found = [
        Finding(WARNING, f"no reader knows the key `{key}` of TF_CONFIG{did_you_mean(key, KEYS)}")
        for key in value
        if key not in KEYS
    ]
    if value and not value.get("cluster"):
        alone = "TF_CONFIG has no `cluster`: each task trains alone, without an error"
        hint = f"a right one: {EXAMPLE}"
        if "sparseCluster" in value:
            hint = (
                "no strategy reads `sparseCluster`, which Kubeflow writes for dynamic workers: set "
                "enableDynamicWorker of the TFJob to false"
            )
        task = value.get("task")
        others = bool(found) or (isinstance(task, dict) and task.get("index") not in (None, 0, "0"))
        found.append(Finding(PROBLEM if others else WARNING, alone, hint))
    return found


def _task_findings(value: Mapping[str, Any]) -> list[Finding]:
    task = value.get("task")
    index = task.get("index") if isinstance(task, dict) else None
    if isinstance(index, bool | float):
        text = f"the index of the task is {json.dumps(index)}, which is read as {int(index)}"
        return [Finding(WARNING, text, "write a whole number")]
    return []
