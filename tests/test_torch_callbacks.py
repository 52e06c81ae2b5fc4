"""The callbacks for Lightning and the Hugging Face Trainer, on the real ones where they are installed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspector.session.reader import Session

torch = pytest.importorskip("torch")

import torch_runs as runs  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def test_lightning(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from inspector.integrations.lightning import record_callback

    losses: list[float] = []

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = runs.Net()

        def training_step(self, batch: Any, number: int) -> Any:
            loss = runs.loss_of(self.net, number)
            losses.append(float(loss.detach()))
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    path = tmp_path / "run.session"
    trainer = lightning.Trainer(
        max_steps=4, accumulate_grad_batches=2, gradient_clip_val=0.5, accelerator="cpu", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[record_callback(path, "flight:2")], default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.zeros(20, 1)))
    with Session.open(path) as session:
        assert session.steps == range(1, 5)
        assert session.state == "complete"
        assert session.about.params[0].name == "net.scale"
        pairs = np.array(losses[:8]).reshape(4, 2).mean(1)
        np.testing.assert_allclose(session.metric("loss"), pairs, rtol=1e-6)
        assert (session.metric("clip_scale") < 1).all()


def test_hugging_face(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from inspector.integrations.transformers import record_callback

    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = runs.Net()

        def forward(self, number: Any) -> Any:
            return {"loss": runs.loss_of(self.net, int(number[0]))}

    path = tmp_path / "run.session"
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"), max_steps=4, logging_steps=2, save_strategy="no", report_to=[],
        use_cpu=True, max_grad_norm=0.5, per_device_train_batch_size=1, disable_tqdm=True,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model=Model(), args=arguments, train_dataset=[{"number": n} for n in range(8)],
        callbacks=[record_callback(path)],
    )  # fmt: skip
    trainer.train()
    with Session.open(path) as session:
        assert session.steps == range(1, 5)
        assert session.state == "complete"
        loss = session.metric("loss")
        assert [math.isnan(value) for value in loss] == [True, False, True, False]
        assert (session.metric("clip_scale") < 1).all()
