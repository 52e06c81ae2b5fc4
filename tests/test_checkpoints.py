"""Checkpoints that other programs saved, against what those programs say that they hold."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from checkpoint_files import FOLDER, Expected, expected, needs_torch, opened

from inspector.hyper import Hyper
from inspector.settings import Settings
from inspector.sources.checkpoint.source import Checkpoint

FILES = {
    "tied-gpt": "tied-gpt.pt", "conv-adam": "conv-adam.pt", "odd-groups": "odd-groups.pt",
    "named-params": "named-params.pt", "bf16-wrapped": "bf16-wrapped.pt", "legacy": "legacy.pt",
    "lightning": "lightning.pt", "by-name": "by-name.pt", "adapters": "adapters.pt", "sgd": "sgd.pt",
    "bitsandbytes": "bitsandbytes.pt",
}  # fmt: skip


def check(source: Checkpoint, wanted: Expected) -> None:
    """Every param, moment and step count is the one of that name, bit for bit."""
    state = source.initial_state()
    assert {p.name: p.shape for p in source.params} == {name: a.shape for name, a in wanted["w"].items()}
    for lane in ("w", "m", "v"):
        values = getattr(state, lane)
        assert values.keys() == wanted.get(lane, {}).keys(), lane
        for name, each in wanted.get(lane, {}).items():
            assert values[name].dtype == np.float32
            np.testing.assert_array_equal(values[name], each.astype(np.float32).ravel(), f"{lane} {name}")
    steps = {name: int(t) for name, t in wanted.get("t", {}).items()}
    assert state.finished_steps == max(steps.values(), default=0)
    for number, param in enumerate(source.params):
        settings = source.hyper.of_param(number, decays=True)
        if param.name in steps:
            assert state.finished_steps - settings.behind == steps[param.name], param.name


@pytest.mark.parametrize("name", FILES)
def test_a_file_holds_what_its_program_says(name: str) -> None:
    needs_torch()
    check(opened(FOLDER / FILES[name]), expected(name))


def test_a_folder_of_shards_with_its_optimizer_is_one_checkpoint() -> None:
    """Eleven layers, whose numbers sort as numbers; q, k, v and o, gate and up of equal shapes."""
    needs_torch()
    source = opened(FOLDER / "sharded")
    check(source, expected("sharded"))
    assert "not verified" in source.remarks[0]
    folder = FOLDER / "sharded"
    for part in ("model.safetensors.index.json", "model-00002-of-00002.safetensors"):
        check(opened(folder / part, folder / "optimizer.pt"), expected("sharded"))


def test_a_list_of_names_gives_the_order_back() -> None:
    needs_torch()
    check(opened(FOLDER / "sharded", FOLDER / "sharded.names.txt"), expected("sharded"))


def test_a_flattened_state_is_joined_by_name() -> None:
    wanted = {
        lane: {f"model.{name}": each for name, each in values.items()}
        for lane, values in expected("by-name").items()
    }
    check(opened(FOLDER / "by-name-flat.safetensors"), wanted)


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (["optax-slashes.safetensors"], "params/{}".format),
        (
            ["optax-keystr.safetensors"],
            lambda name: "".join(f"['{part}']" for part in f"params/{name}".split("/")),
        ),
        (
            ["optax-dots-params.safetensors", "optax-dots-state.safetensors"],
            lambda name: name.replace("/", "."),
        ),
        (
            ["optax-dots-state.safetensors", "optax-dots-params.safetensors"],
            lambda name: name.replace("/", "."),
        ),
    ],
)
def test_the_state_of_optax_is_told_by_its_names(files: list[str], named: Callable[[str], str]) -> None:
    """m in bfloat16, a count beside the moments and another of the schedule."""
    stored = expected("optax")
    count = int(stored.pop("count")[""])
    wanted = {lane: {named(name): each for name, each in values.items()} for lane, values in stored.items()}
    source = opened(*(FOLDER / file for file in files))
    check(source, wanted | {"t": dict.fromkeys(wanted["w"], count)})
    assert source.origin == "optax"
    assert {kinds["m"] for kinds in source.stored.values()} == {"BF16"}
    assert any("says nothing of learning rate" in remark for remark in source.remarks)


def test_weights_that_a_package_ships() -> None:
    """The learned metric of lpips 0.1.4 (BSD licence beside it), saved in the format of before PyTorch 1.6."""
    needs_torch()
    source = opened(FOLDER / "lpips-0.1.4-alex.pth")
    assert [p.shape[1] for p in source.params] == [64, 192, 384, 256, 256]
    assert [p.name for p in source.params] == [f"lin{i}.model.1.weight" for i in range(5)]
    assert all((w >= 0).all() for w in source.initial_state().w.values())
    assert source.gradients(1, dict).values == {}
    assert "all 0" in source.description


# --- settings


def test_groups_become_settings_of_their_params() -> None:
    """Three groups, the first of them empty; two params that differ in their count; λ that differs."""
    needs_torch()
    source = opened(FOLDER / "odd-groups.pt")
    by_name = {p.name: source.hyper.of_param(i, decays=True) for i, p in enumerate(source.params)}
    assert by_name["usual"] == Settings(1e-2, 0.9, 0.999, 1e-8, 0.01, behind=0)
    assert by_name["late"] == Settings(1e-4, 0.8, 0.99, 1e-6, 0.5, behind=3)
    # It never had a gradient, so its first step is yet to come.
    assert by_name["never"] == Settings(1e-4, 0.8, 0.99, 1e-6, 0.5, behind=5)
    assert {p.name: p.group for p in source.params} == {
        "logit_scale": 1, "empty": 1, "never": 2, "late": 2, "usual": 1,
    }  # fmt: skip
    assert source.hyper.max_grad_norm == math.inf
    assert any("no state of never" in remark for remark in source.remarks)
    assert any("took fewer steps" in remark and "late 2 of 5" in remark for remark in source.remarks)


def test_a_split_by_decay_alone_needs_no_classes() -> None:
    needs_torch()
    source = opened(FOLDER / "tied-gpt.pt")
    assert source.hyper == Hyper(3e-4, 0.9, 0.95, 1e-8, 0.1, math.inf)
    assert all((p.block == "wd") == (len(p.shape) >= 2) for p in source.params)
    assert any("lm_head.weight shares its memory with embed_tokens.weight" in r for r in source.remarks)
    assert any("inv_freq" in r and "left out" in r for r in source.remarks)


def test_decay_of_one_group_holds_for_norms_and_biases_too() -> None:
    needs_torch()
    source = opened(FOLDER / "bf16-wrapped.pt")
    assert source.hyper.per_param is None
    assert {p.block for p in source.params} == {"wd"}
    assert {kinds["w"] for kinds in source.stored.values()} == {"BF16"}


def test_params_without_a_place_in_the_optimizer_stay_as_they_are() -> None:
    needs_torch()
    for name, frozen in (("adapters", "base.0.weight"), ("lightning", "model.backbone.weight")):
        source = opened(FOLDER / f"{name}.pt")
        number = [p.name for p in source.params].index(frozen)
        assert source.hyper.of_param(number, decays=True).idle
        assert any(frozen in remark and "left as they are" in remark for remark in source.remarks)
        assert frozen not in source.gradients(source.finished_steps + 2, dict).values


def test_adam_with_its_decay_in_the_gradient_is_told_from_adamw() -> None:
    needs_torch()
    adam, adamw = opened(FOLDER / "conv-adam.pt"), opened(FOLDER / "tied-gpt.pt")
    assert adam.form is not None
    assert adamw.form is not None
    assert (adam.form.optimizer, adamw.form.optimizer) == ("adam-l2", "adamw")
    assert adam.form.numerics == "precise"
    assert (adam.origin, adamw.origin) == ("PyTorch Adam", "PyTorch AdamW")
    # An older file does not say.
    legacy = opened(FOLDER / "legacy.pt")
    assert any("does not say whether its weight decay of 0.01 is decoupled" in r for r in legacy.remarks)


def test_what_the_kernels_have_no_place_for_is_said() -> None:
    needs_torch()
    source = opened(FOLDER / "named-params.pt")
    assert any("max_exp_avg_sq" in remark for remark in source.remarks)
    assert any("maximizes" in remark for remark in source.remarks)
    assert "amsgrad" in source.unreplayable
    assert source.hyper.lr == pytest.approx(1e-3, rel=1e-7)
    assert any("momentum_buffer" in remark for remark in opened(FOLDER / "sgd.pt").remarks)


# --- 8-bit state


def test_codes_of_bitsandbytes_go_on_byte_for_byte() -> None:
    """bitsandbytes-foundation/bitsandbytes#1269: the type of the state is shown for each param."""
    needs_torch()
    source, wanted = opened(FOLDER / "bitsandbytes.pt"), expected("bitsandbytes")
    coded = source.initial_state().coded
    assert coded.keys() == wanted["m.codes"].keys() == {"table.weight"}
    for lane, encoded in (("m", coded["table.weight"].m), ("v", coded["table.weight"].v)):
        codes = wanted[f"{lane}.codes"]["table.weight"].ravel()
        assert encoded.codes.dtype == np.uint8
        assert encoded.codes.size == 17 * 256
        np.testing.assert_array_equal(encoded.codes[: codes.size], codes)
        assert set(encoded.codes[codes.size :].tolist()) <= {127 if lane == "m" else 0}
        np.testing.assert_array_equal(encoded.scales, wanted[f"{lane}.scales"]["table.weight"])
    assert source.form is not None
    assert (source.form.kernel, source.form.codec) == ("8bit", "dynamic")
    assert source.stored["table.weight"] == {"w": "F32", "m": "8bit dynamic", "v": "8bit dynamic"}
    assert source.stored["out.weight"] == {"w": "F32", "m": "F32", "v": "F32"}
    assert source.origin == "bitsandbytes"
