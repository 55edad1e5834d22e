"""What a cluster is to run, settled before anything starts: commands, environments, files."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from reference_trainers import Trainer
from suite.harness.core.topology import Topology


@dataclass(frozen=True)
class Plan:
    """A trainer, its topology and where everything goes; one for each cluster."""

    trainer: Trainer
    topology: Topology
    addresses: Mapping[str, str]
    backend: str
    keras: str
    flags: Mapping[str, Any]
    env: Mapping[str, str]  # of all tasks, complete
    task_env: Mapping[str, Mapping[str, str]]  # what each task has on top of it
    python: str
    events: Path  # directory of the event files
    logs: Path
    label: str
    on_hosts: bool = False  # each task on a host of its own, see hosts.py
    task_flags: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # in place of `flags`
    on_disk: str = ""  # size of a disk of its own for the model directory, see tmpfs_disk.py

    def arguments(self, task: str) -> list[str]:
        """The command line of a task: how it learns its role, then its work."""
        arguments = self.topology.arguments(self.trainer.role, task, self.addresses)
        for name, value in {**self.flags, **self.task_flags.get(task, {})}.items():
            if value is True:
                arguments.append(f"--{name}")
            elif value is not None and value is not False:
                arguments += [f"--{name}", str(value)]
        return arguments

    def environment(self, task: str, attempt: int) -> dict[str, str]:
        return {
            **self.env,
            **self.topology.environment(self.trainer.role, task, self.addresses),
            **self.task_env.get(task, {}),
            "TRAINER_EVENTS": str(self.events / f"{task.replace('/', '-')}.{attempt}.jsonl"),
            "TRAINER_ATTEMPT": str(attempt),
        }

    def command(self, task: str) -> str:
        """What starts this task alone, in a shell."""
        role = self.topology.environment(self.trainer.role, task, self.addresses)
        settings = [f"{name}={shlex.quote(value)}" for name, value in role.items()]
        return " ".join(
            [*settings, shlex.join([self.python, self.trainer.program, *self.arguments(task)])]
        )

    @cached_property
    def commands(self) -> Mapping[str, str]:
        """`command` of each task."""
        return {task: self.command(task) for task in self.topology.tasks}

    def log(self, task: str, attempt: int) -> Path:
        """Where an incarnation's output goes."""
        return self.logs / f"{task.replace('/', '-')}.{attempt}.log"
