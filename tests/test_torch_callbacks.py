"""The callbacks for Lightning and the Hugging Face Trainer, on the real ones where they are installed."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspector.integrations import not_installed
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


@pytest.mark.parametrize(
    ("missing", "module", "told"),
    [
        (("transformers",), "transformers", "needs transformers, .*: pip install transformers accelerate."),
        (("lightning", "pytorch_lightning"), "lightning", "needs Lightning, .*: pip install lightning."),
        (("torch",), "transformers", "needs PyTorch, .*: pip install 'optimizer-inspector\\[torch\\]'."),
        (("torch",), "lightning", "needs PyTorch, .*: pip install 'optimizer-inspector\\[torch\\]'."),
    ],
)
def test_what_is_not_installed_is_named_with_the_command_that_installs_it(
    missing: tuple[str, ...], module: str, told: str
) -> None:
    # A process of its own: what is missing must not have been imported before.
    script = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
from inspector.integrations.{module} import record_callback
try:
    record_callback("run.session")
except ModuleNotFoundError as error:
    print(error)
"""
    found = subprocess.run(
        [sys.executable, "-c", script], env=runs.environment(), capture_output=True, text=True, check=True
    )
    assert re.fullmatch(f".* {told}", found.stdout.strip()), found.stdout


def test_a_package_that_lacks_another_one_says_so_itself() -> None:
    error = ModuleNotFoundError("No module named 'regex'", name="regex")
    assert not_installed(error, "A callback", "transformers", "transformers", "transformers") is error
