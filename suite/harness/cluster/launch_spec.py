"""The complete specification of a cluster before its start: commands, environments, files."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from reference_trainers import OBSERVER_FLAGS, Trainer
from suite.harness.core.paths import TASK_SIDE
from suite.harness.core.placeholders import fill_in
from suite.harness.core.topology import Topology

OBSERVE = TASK_SIDE / "observe.py"
STARTUP = TASK_SIDE / "startup"  # has sitecustomize.py
PYTHONPATH = "PYTHONPATH"


def as_flags(given: Mapping[str, Any]) -> list[str]:
    """Return `--name value` for each flag; True is a switch, None and False omit the flag."""
    arguments: list[str] = []
    for name, value in given.items():
        if value is True:
            arguments.append(f"--{name}")
        elif value is not None and value is not False:
            arguments += [f"--{name}", str(value)]
    return arguments


CUDA = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Plan:
    """A trainer, its topology and its paths; one for each cluster."""

    trainer: Trainer
    topology: Topology
    addresses: Mapping[str, str]
    backend: str
    keras: str
    flags: Mapping[str, Any]
    env: Mapping[str, str]  # of all tasks, complete
    gpus: Mapping[str, str]  # CUDA_VISIBLE_DEVICES of each worker
    python: str
    events: Path  # directory of the event files
    logs: Path
    label: str
    on_hosts: bool = False  # each task on its own host, see virtual_hosts.py
    task_flags: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # override `flags`
    on_disk: str = ""  # size of the model directory's own disk, see tmpfs_disk.py
    spawn: str = "fork"
    working_directory: Path | None = None  # of all tasks; None: the directory of the event files
    private_tmp: Path | None = (
        None  # an empty directory that is /tmp to the tasks; None: the real one
    )

    @property
    def program(self) -> str:
        """Return what to start: the observer's path, or the module or the path of the trainer."""
        if self._is_wrapped:
            return str(OBSERVE)
        return self.trainer.module or self.trainer.program

    @property
    def is_module(self) -> bool:
        """Return True if `program` is the name of a module."""
        return bool(self.trainer.module) and not self.is_observed

    @property
    def _is_wrapped(self) -> bool:
        """Return True if the observer runs the program; it gets into what a script starts."""
        return self.is_observed and self.trainer.python

    @property
    def prefix(self) -> str:
        """Return the first part of the names of variables that configure the writer of events."""
        is_script = self.is_observed and not self.trainer.python
        return "OBSERVER_" if is_script else "TRAINER_"

    @property
    def is_observed(self) -> bool:
        return self.trainer.is_observed

    def arguments(self, task: str) -> list[str]:
        """Return the command-line arguments of a task: its role, then its flags."""
        role = self.topology.arguments(self.trainer.role, task, self.addresses)
        given = {**self.flags, **self.task_flags.get(task, {})}
        of_observer = {}
        if self.trainer.plain:
            others = [name for name in OBSERVER_FLAGS if name not in self.trainer.own_flags]
            of_observer = {name: given.pop(name) for name in others if name in given}
            of_observer["probe"] = True
        if self.trainer.arguments is None:
            own = as_flags(given)
        else:
            if "batch-size" in given:
                workers = len(self.topology.workers)
                given["global-batch-size"] = given["batch-size"] * workers
            named = self.trainer.flags  # other flags are of a program around the user's
            around = {k: v for k, v in self.task_flags.get(task, {}).items() if k not in named}
            own = [*as_flags(around), *fill_in(self.trainer.arguments, given)]
        if self._is_wrapped:
            observed = [self.trainer.program]
            if self.trainer.module:
                observed = ["--module", self.trainer.module]
            return ["--task", task, *as_flags(of_observer), *observed, *role, *own]
        return [*role, *own]

    def environment(self, task: str, attempt: int) -> dict[str, str]:
        own = dict(self.trainer.environment)
        paths = [own.get(PYTHONPATH, ""), self.env.get(PYTHONPATH, "")]
        if self.prefix == "OBSERVER_":
            paths.insert(0, str(STARTUP))
            own["OBSERVER_TASK"] = task
        own[PYTHONPATH] = os.pathsep.join(filter(None, paths))
        return {
            **self.env,
            **own,
            **self.topology.environment(self.trainer.role, task, self.addresses),
            **({CUDA: self.gpus[task]} if task in self.gpus else {}),
            self.prefix + "EVENTS": str(self.event_file(task, attempt)),
            self.prefix + "ATTEMPT": str(attempt),
        }

    def event_file(self, task: str, attempt: int) -> Path:
        """Return the path of the event file of an attempt."""
        return self.events / f"{task.replace('/', '-')}.{attempt}.jsonl"

    def command(self, task: str) -> str:
        """Return a shell command that starts this task alone."""
        role = self.topology.environment(self.trainer.role, task, self.addresses)
        given = {**dict(self.trainer.environment), **role}
        settings = [f"{name}={shlex.quote(value)}" for name, value in given.items()]
        interpreter = [self.python] if self.trainer.python else []
        interpreter += ["-m"] if self.is_module else []
        return " ".join(
            [*settings, shlex.join([*interpreter, self.program, *self.arguments(task)])]
        )

    @cached_property
    def commands(self) -> Mapping[str, str]:
        """Return `command` of each task."""
        return {task: self.command(task) for task in self.topology.tasks}

    @property
    def cwd(self) -> Path:
        return self.working_directory or self.events

    def log(self, task: str, attempt: int) -> Path:
        """Return the path of the log of an attempt."""
        return self.logs / f"{task.replace('/', '-')}.{attempt}.log"
