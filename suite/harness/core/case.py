"""A case: the trainer, backend and Keras flavor of one test."""

from __future__ import annotations

from dataclasses import dataclass

from reference_trainers import Trainer
from suite.harness.core.versions import NO_KERAS


@dataclass(frozen=True)
class Case:
    """One trainer with one requested backend under one Keras flavor."""

    trainer: Trainer
    backend: str
    keras: str

    @property
    def id(self) -> str:
        parts = [self.trainer.name]
        parts += [self.backend] if self.backend != "none" else []
        parts += [self.keras] if self.keras != NO_KERAS else []
        return "-".join(parts)

    @property
    def distributed(self) -> bool:
        return bool(self.trainer.jobs)
