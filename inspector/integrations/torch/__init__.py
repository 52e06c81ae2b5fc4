"""Runs of PyTorch, recorded by one line in the training script: `record(optimizer, "run.session", model=model)`."""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "Recording a run of PyTorch needs PyTorch, which is not installed: pip install 'optimizer-inspector[torch]'.",
        name="torch",
    ) from None

from inspector.integrations.torch.recording import Recording, RecordingWarning, record

__all__ = ["Recording", "RecordingWarning", "record"]
