"""A callback that records a run of the Hugging Face Trainer; transformers is imported when it is made.

trainer = Trainer(..., callbacks=[record_callback("run.session", capture="flight:8")])
"""

from __future__ import annotations

import os
from typing import Any

from inspector.integrations import not_installed


def record_callback(path: str | os.PathLike[str], capture: str = "stats", **options: Any) -> Any:
    """A `TrainerCallback` that records from the start of training to its end.

    `options` are those of `inspector.integrations.torch.record`. The Trainer tells callbacks a loss only when it logs
    one, the mean since it logged before: that is noted at its step (`logging_steps=1` for every step).
    ModuleNotFoundError, with the command that installs it, where transformers or PyTorch is missing.
    """
    from inspector.integrations.torch import record

    try:
        from transformers import TrainerCallback
    except ModuleNotFoundError as error:
        raise not_installed(
            error,
            "A callback for the Hugging Face Trainer",
            "transformers",
            "transformers accelerate",
            "transformers",
        ) from None

    class Record(TrainerCallback):  # type: ignore[misc]
        recording: Any = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            # After a checkpoint was loaded.
            self.recording = record(
                given["optimizer"], path, given.get("model"), capture, loss_after=True, **options
            )

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **given: Any) -> None:
            if self.recording is not None and logs and "loss" in logs:
                self.recording.loss(logs["loss"])

        def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            if self.recording is not None:
                self.recording.close()

    return Record()
