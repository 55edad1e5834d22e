"""The complete specification of a cluster before its start: commands, environments, files."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from reference_trainers import Trainer
from suite.harness.core.paths import TASK_SIDE
from suite.harness.core.placeholders import fill_in
from suite.harness.core.topology import Topology

OBSERVE = TASK_SIDE / "observe.py"


def as_flags(given: Mapping[str, Any]) -> list[str]:
    """Return `--name value` for each flag; True is a switch, None and False omit the flag."""
    arguments: list[str] = []
    for name, value in given.items():
        if value is True:
            arguments.append(f"--{name}")
        elif value is not None and value is not False:
            arguments += [f"--{name}", str(value)]
    return arguments


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
    task_env: Mapping[str, Mapping[str, str]]  # additions for each task
    python: str
    events: Path  # directory of the event files
    logs: Path
    label: str
    on_hosts: bool = False  # each task on its own host, see virtual_hosts.py
    task_flags: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # override `flags`
    on_disk: str = ""  # size of the model directory's own disk, see tmpfs_disk.py
    spawn: str = "fork"
    working_directory: Path | None = None  # of all tasks; None: the directory of the event files

    @property
    def program(self) -> str:
        """Return the path of the Python program to start: the trainer, or its observer."""
        return str(OBSERVE) if self.trainer.observed else self.trainer.program

    def arguments(self, task: str) -> list[str]:
        """Return the command-line arguments of a task: its role, then its flags."""
        role = self.topology.arguments(self.trainer.role, task, self.addresses)
        given = {**self.flags, **self.task_flags.get(task, {})}
        if self.trainer.arguments is None:
            own = as_flags(given)
        else:
            if "batch-size" in given:
                workers = len(self.topology.workers)
                given["global-batch-size"] = given["batch-size"] * workers
            named = self.trainer.flags  # other flags are of a program around the user's
            around = {k: v for k, v in self.task_flags.get(task, {}).items() if k not in named}
            own = [*as_flags(around), *fill_in(self.trainer.arguments, given)]
        if self.trainer.observed:
            return ["--task", task, self.trainer.program, *role, *own]
        return [*role, *own]

    def environment(self, task: str, attempt: int) -> dict[str, str]:
        return {
            **self.env,
            **dict(self.trainer.environment),
            **self.topology.environment(self.trainer.role, task, self.addresses),
            **self.task_env.get(task, {}),
            "TRAINER_EVENTS": str(self.events / f"{task.replace('/', '-')}.{attempt}.jsonl"),
            "TRAINER_ATTEMPT": str(attempt),
        }

    def command(self, task: str) -> str:
        """Return a shell command that starts this task alone."""
        role = self.topology.environment(self.trainer.role, task, self.addresses)
        settings = [f"{name}={shlex.quote(value)}" for name, value in role.items()]
        interpreter = [self.python] if self.trainer.python else []
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
