"""The formats in which approaches save a model, and where they lie in an artifact."""

from __future__ import annotations

from collections.abc import Mapping

from reference_trainers import Trainer

CHECKPOINT, SAVED_MODEL, KERAS_FILE = "checkpoint", "SavedModel", "Keras file"
# Format -> its directory or file in an artifact.
PATHS: Mapping[str, str] = {
    CHECKPOINT: "checkpoint",
    SAVED_MODEL: "saved_model",
    KERAS_FILE: "model.keras",
}


def formats_of(trainer: Trainer) -> list[str]:
    """Return the formats that an approach saves in."""
    exports = "exported" in trainer.events
    return [
        CHECKPOINT,
        *([SAVED_MODEL] if exports else []),
        *([KERAS_FILE] if exports and trainer.keras else []),
    ]
