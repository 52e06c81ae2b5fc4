"""Runs of PyTorch, recorded by one line in the training script: `record(optimizer, "run.session", model=model)`."""

from __future__ import annotations

from inspector.integrations import not_installed

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise not_installed(
        error, "Recording a run of PyTorch", "PyTorch", "'optimizer-inspector[torch]'", "torch"
    ) from None

from inspector.integrations.torch.recording import Recording, RecordingWarning, record

__all__ = ["Recording", "RecordingWarning", "record"]
