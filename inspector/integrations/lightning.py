"""A callback that records a run of Lightning; Lightning is imported when it is made.

trainer = Trainer(callbacks=[record_callback("run.session", capture="flight:8")])
"""

from __future__ import annotations

import os
from typing import Any

from inspector.integrations import not_installed


def record_callback(path: str | os.PathLike[str], capture: str = "stats", **options: Any) -> Any:
    """A `Callback` that records the trainer's first optimizer from the start of `fit` to its end.

    `options` are those of `inspector.integrations.torch.record`. The loss is what `training_step` returned, the mean
    over the batches of a step. ModuleNotFoundError, with the command that installs it, where Lightning or PyTorch is
    missing.
    """
    from inspector.integrations.torch import record

    try:
        from lightning.pytorch.callbacks import Callback
    except ModuleNotFoundError as missing:
        if missing.name not in ("lightning", "lightning.pytorch"):
            raise
        try:
            from pytorch_lightning.callbacks import Callback
        except ModuleNotFoundError as error:
            raise not_installed(
                error, "A callback for Lightning", "Lightning", "lightning", "pytorch_lightning"
            ) from None

    class Record(Callback):  # type: ignore[misc]
        recording: Any = None

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            # After a checkpoint was loaded.
            self.recording = record(trainer.optimizers[0], path, pl_module, capture, **options)

        def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
            # As it is differentiated: divided by the number of batches that are accumulated.
            self.recording.loss(loss.detach() * trainer.accumulate_grad_batches)

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            self._close(exception)

        def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
            self._close(None)

        def _close(self, error: BaseException | None) -> None:
            if self.recording is not None:
                self.recording.close(error)

    return Record()
