"""Weights and states that do not fit together, or may not: refused, or taken with a warning, by name and shape."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_files import adam, loaded, opened, stored, weights
from safetensors.numpy import save_file

from inspector.errors import UsageError
from inspector.settings import Settings
from inspector.sources.checkpoint.drawn import drawn_gradient
from inspector.sources.checkpoint.order import in_usual_order
from inspector.sources.checkpoint.source import Checkpoint
from inspector.tensor_tree import TensorDocument


def test_swapped_params_are_refused_with_both_names_and_shapes(tmp_path: Path) -> None:
    """pytorch/pytorch#1489, Lightning-AI/pytorch-lightning#17025: state is keyed by position."""
    with pytest.raises(UsageError) as raised:
        loaded(tmp_path, {"model": weights(a=(3, 2), b=(4, 3)), "optimizer": adam([(4, 3), (3, 2)])})
    text = str(raised.value)
    for part in ("'a'", "'b'", "[3, 2]", "[4, 3]", "state 0"):
        assert part in text, part


def test_equal_shapes_in_an_order_nobody_can_verify_are_loaded_with_a_warning(tmp_path: Path) -> None:
    document = {"model": weights(a=(3, 2), b=(3, 2)), "optimizer": adam([(3, 2), (3, 2)])}
    source = loaded(tmp_path, document)
    assert [m[0] for m in source.initial_state().m.values()] == [1.0, 2.0]
    assert any("not verified" in r and "a and b" in r and "[3, 2]" in r for r in source.remarks)


def test_states_without_their_groups_are_left_out_and_said(tmp_path: Path) -> None:
    state = adam([(3, 2)])
    del state["param_groups"]
    source = loaded(tmp_path, {"model": weights(a=(3, 2)), "optimizer": state})
    assert not source.initial_state().m
    assert any("no param_groups" in remark and "left out" in remark for remark in source.remarks)


@pytest.mark.parametrize(("gone", "left"), [("exp_avg", "exp_avg_sq"), ("exp_avg_sq", "exp_avg")])
def test_half_a_state_beside_whole_ones_is_refused(tmp_path: Path, gone: str, left: str) -> None:
    state = adam([(3, 2), (4, 3)])
    del state["state"][1][gone]
    with pytest.raises(UsageError, match=f"state of 1 has {left} and no {gone}"):
        loaded(tmp_path, {"model": weights(a=(3, 2), b=(4, 3)), "optimizer": state})


def test_who_named_a_list_is_not_told_to_name_one(tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("b\na\n")
    document = {"model": weights(a=(3, 2), b=(3, 2)), "optimizer": adam([(3, 2), (3, 2)])}
    file = tmp_path / "a.pt"
    file.write_bytes(b"PK\x05\x06" + bytes(18))
    source = Checkpoint(
        "made", [file, names], lambda path: TensorDocument(path, "PyTorch", document, True), seed=0
    )
    assert [float(source.initial_state().m[name].flat[0]) for name in "ba"] == [1.0, 2.0]
    assert any("in the order of the list of names" in remark for remark in source.remarks)
    assert not any("name a text file" in remark for remark in source.remarks)


def test_names_verify_the_order(tmp_path: Path) -> None:
    state = adam([(3, 2), (3, 2)], param_names=["b", "a"])
    source = loaded(tmp_path, {"model": weights(a=(3, 2), b=(3, 2)), "optimizer": state})
    assert {name: m[0] for name, m in source.initial_state().m.items()} == {"b": 1.0, "a": 2.0}
    assert not any("not verified" in remark for remark in source.remarks)


def test_shapes_that_all_differ_verify_the_order(tmp_path: Path) -> None:
    source = loaded(tmp_path, {"model": weights(a=(3, 2), b=(4, 3)), "optimizer": adam([(3, 2), (4, 3)])})
    assert not any("not verified" in remark for remark in source.remarks)


def test_a_name_whose_shape_differs_is_refused(tmp_path: Path) -> None:
    state = adam([(2, 3)], param_names=["a"])
    with pytest.raises(UsageError, match=r"the state of 'a' has the shape \[2, 3\].*'a' have \[3, 2\]"):
        loaded(tmp_path, {"model": weights(a=(3, 2)), "optimizer": state})


def test_a_state_of_a_param_that_is_not_there_is_refused(tmp_path: Path) -> None:
    state = adam([(3, 2), (5,)], param_names=["a", "gone"])
    with pytest.raises(UsageError, match=r"a state of 'gone', of the shape \[5\].*no such param"):
        loaded(tmp_path, {"model": weights(a=(3, 2)), "optimizer": state})


def test_more_states_than_params_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"keeps state of 3 params, the weights have 2.*\[7\]"):
        loaded(tmp_path, {"model": weights(a=(3, 2), b=(4, 3)), "optimizer": adam([(3, 2), (7,), (4, 3)])})


def test_groups_that_take_turns_are_followed_by_their_shapes(tmp_path: Path) -> None:
    """Layers of matrix and vector, decayed and not, beside a frozen vector in the middle."""
    shapes: dict[str, tuple[int, ...]] = {
        "x__weight": (3, 2), "x__bias": (3,), "frozen": (9,), "y__weight": (3, 2), "y__bias": (3,),
    }  # fmt: skip
    state = adam([(3, 2), (3, 2), (3,), (3,)])
    groups = [{"params": [0, 1], "weight_decay": 0.1}, {"params": [2, 3], "weight_decay": 0.0}]
    source = loaded(tmp_path, {"model": weights(**shapes), "optimizer": {**state, "param_groups": groups}})
    m = {name: each[0] for name, each in source.initial_state().m.items()}
    assert m == {"x.weight": 1, "y.weight": 2, "x.bias": 3, "y.bias": 4}
    assert source.hyper.of_param(2, decays=True).idle


def test_a_group_for_each_layer_is_followed(tmp_path: Path) -> None:
    """Rates that fall from layer to layer: the last group has the first layer."""
    shapes: dict[str, tuple[int, ...]] = {"a": (3, 2), "b": (3,), "c": (4, 2), "d": (4,)}
    state = adam([(4, 2), (4,), (3, 2), (3,)])
    groups = [{"params": [0, 1], "lr": 1e-3}, {"params": [2, 3], "lr": 1e-4}]
    source = loaded(tmp_path, {"model": weights(**shapes), "optimizer": {**state, "param_groups": groups}})
    assert {n: each[0] for n, each in source.initial_state().m.items()} == {"a": 3, "b": 4, "c": 1, "d": 2}
    assert source.hyper.of_param(0, decays=True).lr == 1e-4


def test_params_whose_shape_nobody_kept_go_to_the_group_of_their_kind(tmp_path: Path) -> None:
    """The first layer never had a gradient: its matrix belongs to the decayed group, its vector to the other."""
    shapes: dict[str, tuple[int, ...]] = {"a__w": (5, 2), "a__b": (5,), "b__w": (3, 2), "b__b": (3,)}
    for first, second in (([0, 1], [2, 3]), ([2, 3], [0, 1])):
        state = adam([(), (3, 2), (), (3,)])
        del state["state"][0], state["state"][2]
        decay = {0: 0.1, 2: 0.0}
        groups = [{"params": keys, "weight_decay": decay[keys[0]]} for keys in (first, second)]
        source = loaded(
            tmp_path, {"model": weights(**shapes), "optimizer": {**state, "param_groups": groups}}
        )
        assert [p.block for p in source.params] == ["wd", "no_wd", "wd", "no_wd"]
        assert {n: each[0] for n, each in source.initial_state().m.items()} == {"b.w": 2, "b.b": 4}


def test_a_group_is_filled_before_the_next_where_shapes_leave_the_choice(tmp_path: Path) -> None:
    shapes: dict[str, tuple[int, ...]] = {"frozen": (9,), "a": (3,), "b": (3,), "c": (3,), "d": (3,)}
    state = adam([(3,)] * 4)
    groups = [{"params": [0, 1], "lr": 1e-3}, {"params": [2, 3], "lr": 1e-4}]
    source = loaded(tmp_path, {"model": weights(**shapes), "optimizer": {**state, "param_groups": groups}})
    assert {n: each[0] for n, each in source.initial_state().m.items()} == {"a": 1, "b": 2, "c": 3, "d": 4}


def test_each_count_holds_for_the_moments_beside_it(tmp_path: Path) -> None:
    """Two transformations over parts of the params, as optax.multi_transform has them."""
    path = tmp_path / "state.safetensors"
    tensors: dict[str, Any] = {"params/x": np.float32([1]), "params/y": np.float32([2])}
    for part, name, count in (("a", "x", 3), ("b", "y", 5)):
        base = f"inner_states/{part}/0"
        tensors |= {f"{base}/mu/{name}": np.float32([0.5]), f"{base}/nu/{name}": np.float32([0.25]),
                    f"{base}/count": np.int32(count)}  # fmt: skip
    save_file({name: np.asarray(each) for name, each in tensors.items()}, path)
    source = opened(path)
    assert source.finished_steps == 5
    assert [source.hyper.of_param(i, decays=True).t(6) for i in range(2)] == [4, 6]


@pytest.mark.parametrize(
    ("step", "t"),
    [(7, 7), (7.0, 7), (stored(7.0), 7), (stored([7.0]), 7), (stored([[7.0]]), 7), (stored(np.array(7)), 7),
     (stored([7.0, 7.0]), 7), (stored([6.0, 7.0]), 7), (0, 0)],
)  # fmt: skip
def test_a_step_may_be_a_number_or_a_tensor_of_any_shape(tmp_path: Path, step: Any, t: int) -> None:
    source = loaded(tmp_path, {"model": weights(a=(3,)), "optimizer": adam([(3,)], step=step)})
    assert source.initial_state().finished_steps == t


@pytest.mark.parametrize("step", [-1, 1.5, math.nan, "7", stored(np.float32([np.nan])), 1e300])
def test_a_step_that_is_none_is_refused(tmp_path: Path, step: Any) -> None:
    with pytest.raises(UsageError, match="no number of finished steps"):
        loaded(tmp_path, {"model": weights(a=(3,)), "optimizer": adam([(3,)], step=step)})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lr": "fast"}, "group 0: its lr is 'fast', which is not a number"),
        ({"betas": [0.9]}, "betas are not two numbers"),
        ({"betas": "09"}, "betas are not two numbers"),
        ({"params": None}, "group 0 does not list its params"),
        ({"params": [[0]]}, "group 0 does not list its params"),
        ({"params": [0, 0]}, "lists the param 0 in two places"),
        ({"params": [1]}, "a state of the param 0, which is in none of its groups"),
        ({"param_names": ["a", "b"]}, "group 0 has 1 params and 2 param_names"),
    ],
)
def test_a_damaged_state_is_refused_by_what_is_wrong(tmp_path: Path, change: Any, words: str) -> None:
    state = adam([(3,)])
    state["param_groups"][0] |= change
    with pytest.raises(UsageError, match=words):
        loaded(tmp_path, {"model": weights(a=(3,)), "optimizer": state})


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"exp_avg_sq": stored([1.0, 2.0])}, r"its m has the shape \[3\], its v \[2\]"),
        ({"exp_avg": stored(np.int64([1, 2, 3]))}, "exp_avg of the type I64"),
        ({"state1": stored(np.uint8([1, 2, 3])), "exp_avg": None}, "without a map of 256 values"),
        (
            {
                "state1": stored(np.uint8([1, 2, 3])),
                "qmap1": stored(np.zeros(256, np.float32)),
                "exp_avg": None,
            },
            "without magnitudes",
        ),
    ],
)
def test_moments_that_are_none_are_refused(tmp_path: Path, entry: Any, words: str) -> None:
    state = adam([(3,)])
    state["state"][0] |= entry
    with pytest.raises(UsageError, match=words):
        loaded(tmp_path, {"model": weights(a=(3,)), "optimizer": state})


def test_codes_in_other_blocks_are_decoded_with_a_warning(tmp_path: Path) -> None:
    """Blocks of 2,048 elements and a map of the file's own: value = map[code] · largest."""
    table, largest = np.linspace(-1, 1, 256, dtype=np.float32), np.float32([2, 3, 5])
    codes = np.random.default_rng(1).integers(0, 256, 5000).astype(np.uint8)
    entry = {"step": 1}
    for number in "12":
        entry |= {
            f"state{number}": stored(codes),
            f"qmap{number}": stored(table),
            f"absmax{number}": stored(largest),
        }
    state = {"state": {0: entry}, "param_groups": [{"params": [0]}]}
    source = loaded(tmp_path, {"model": weights(a=(5000,)), "optimizer": state})
    wanted = [table[code] * largest[i // 2048] for i, code in enumerate(codes)]
    np.testing.assert_array_equal(source.initial_state().m["a"], wanted)
    assert source.initial_state().coded == {}
    assert any("decoded to float32" in remark for remark in source.remarks)
    assert source.stored["a"]["m"] == "8bit, blocks of 2048"


def test_an_optimizer_without_its_weights_shows_its_moments(tmp_path: Path) -> None:
    source = loaded(tmp_path, adam([(3, 2), (4,)]))
    assert [(p.name, p.shape) for p in source.params] == [("param.0", (3, 2)), ("param.1", (4,))]
    assert [m[0] for m in source.initial_state().m.values()] == [1.0, 2.0]
    assert not any(w.any() for w in source.initial_state().w.values())
    assert any("without its weights" in remark for remark in source.remarks)


def test_weights_that_two_files_hold_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a.pt and b.pt both hold 'x'"):
        loaded(tmp_path, weights(x=(3,)), weights(x=(3,)))


def test_nothing_of_use_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds neither weights nor the state of an optimizer"):
        loaded(tmp_path, {"epoch": 3, "note": "nothing", "history": [1.0, 2.0]})


def test_one_of_several_sets_of_weights_is_taken_and_said(tmp_path: Path) -> None:
    source = loaded(tmp_path, {"ema": weights(a=(3,)), "model": weights(a=(3,))})
    assert any("'model' is taken, 'ema' is left out" in remark for remark in source.remarks)


@pytest.mark.parametrize(("dtype", "value"), [("F64", 1 / 3), ("F32", 0.5)])
def test_wider_weights_are_rounded_and_said(tmp_path: Path, dtype: str, value: float) -> None:
    array = np.full(3, value, np.float64 if dtype == "F64" else np.float32)
    source = loaded(tmp_path, {"model": {"a": stored(array)}})
    assert source.initial_state().w["a"].tolist() == [float(np.float32(value))] * 3
    assert any("float64" in remark for remark in source.remarks) == (dtype == "F64")


def test_gradients_of_the_file_are_taken_for_the_next_step_alone(tmp_path: Path) -> None:
    given = np.float32([1, 2, 3])
    document = {"model": weights(a=(3,)), "optimizer": adam([(3,)]), "grads": {"a": stored(given)}}
    source = loaded(tmp_path, document)
    assert source.gradients(4, dict).values["a"].tolist() == [1, 2, 3]
    assert source.gradients(5, dict).values["a"].tolist() != [1, 2, 3]
    assert "gradients of step 4" in source.description
    with pytest.raises(UsageError, match=r"gradient of 'a' has the shape \[3\], its weights \[2\]"):
        loaded(tmp_path, {**document, "model": weights(a=(2,)), "optimizer": adam([(2,)])})
    with pytest.raises(UsageError, match="gradient of 'a', and the weights have no such param"):
        loaded(tmp_path, {**document, "model": weights(b=(3,))})


# --- gradients that are drawn


def test_drawn_gradients_have_the_mean_and_the_variance_that_the_moments_say() -> None:
    """m̂ = 0.5 and v̂ = 1.25 after 10 steps: mean 0.5, variance 1, within 6 standard errors of 200,000 draws."""
    settings, t, n = Settings(1e-3, 0.9, 0.99, 1e-8, 0.0), 10, 200_000
    m = np.full(n, 0.5 * (1 - 0.9**10), np.float32)
    v = np.full(n, 1.25 * (1 - 0.99**10), np.float32)
    drawn = drawn_gradient(m, v, settings, t, seed=1, step=11, number=0).astype(np.float64)
    assert abs(drawn.mean() - 0.5) < 6 / math.sqrt(n)
    assert abs(drawn.var() - 1) < 6 * math.sqrt(2 / n)
    again = drawn_gradient(m, v, settings, t, seed=1, step=11, number=0)
    assert again.tobytes() == drawn.astype(np.float32).tobytes()
    for other in ({"seed": 2}, {"step": 12}, {"number": 1}):
        changed: dict[str, Any] = {"seed": 1, "step": 11, "number": 0, **other}
        assert drawn_gradient(m, v, settings, t, **changed).tobytes() != again.tobytes()


def test_drawn_gradients_are_exact_where_the_moments_leave_no_doubt_and_0_where_they_say_nothing() -> None:
    settings = Settings(1e-3, 0.5, 0.5, 1e-8, 0.0)
    # v̂ < m̂² by rounding, infinite, and not a number.
    m, v = np.float32([0.5, 1, np.nan, np.inf]), np.float32([0.125, np.inf, 1, 1])
    drawn = drawn_gradient(m, v, settings, 1, seed=0, step=2, number=0)
    assert drawn.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert not drawn_gradient(m, v, settings, 0, seed=0, step=1, number=0).any()


# --- the order of modules


GPT2 = (
    "wte.weight wpe.weight h.0.ln_1.weight h.0.ln_1.bias h.0.attn.c_attn.weight h.0.attn.c_attn.bias "
    "h.0.attn.c_proj.weight h.0.attn.c_proj.bias h.0.ln_2.weight h.0.ln_2.bias h.0.mlp.c_fc.weight h.0.mlp.c_fc.bias "
    "h.0.mlp.c_proj.weight h.0.mlp.c_proj.bias h.10.ln_1.weight h.10.ln_1.bias ln_f.weight ln_f.bias"
)
LLAMA = (
    "model.embed_tokens.weight model.layers.2.self_attn.q_proj.weight model.layers.2.self_attn.k_proj.weight "
    "model.layers.2.self_attn.v_proj.weight model.layers.2.self_attn.o_proj.weight model.layers.2.mlp.gate_proj.weight "
    "model.layers.2.mlp.up_proj.weight model.layers.2.mlp.down_proj.weight model.layers.2.input_layernorm.weight "
    "model.layers.2.post_attention_layernorm.weight model.layers.10.input_layernorm.weight model.norm.weight "
    "lm_head.weight"
)
BERT = (
    "embeddings.word_embeddings.weight embeddings.position_embeddings.weight embeddings.token_type_embeddings.weight "
    "embeddings.LayerNorm.weight embeddings.LayerNorm.bias encoder.layer.0.attention.self.query.weight "
    "encoder.layer.0.attention.self.key.weight encoder.layer.0.attention.self.value.weight "
    "encoder.layer.0.attention.output.dense.weight encoder.layer.0.attention.output.LayerNorm.weight "
    "encoder.layer.0.intermediate.dense.weight encoder.layer.0.output.dense.weight "
    "encoder.layer.0.output.LayerNorm.weight pooler.dense.weight pooler.dense.bias"
)
VIT = (
    "cls_token pos_embed patch_embed.proj.weight patch_embed.proj.bias blocks.0.norm1.weight blocks.0.norm1.bias "
    "blocks.0.attn.qkv.weight blocks.0.attn.qkv.bias blocks.0.attn.proj.weight blocks.0.norm2.weight "
    "blocks.0.mlp.fc1.weight blocks.0.mlp.fc2.weight norm.weight norm.bias head.weight head.bias"
)
LSTM = (
    "lstm.weight_ih_l0 lstm.weight_hh_l0 lstm.bias_ih_l0 lstm.bias_hh_l0 lstm.weight_ih_l1 lstm.weight_hh_l1"
)


@pytest.mark.parametrize(
    "names", [GPT2, LLAMA, BERT, VIT, LSTM], ids=["gpt2", "llama", "bert", "vit", "lstm"]
)
def test_modules_in_use_are_put_in_the_order_in_which_they_are_registered(names: str) -> None:
    """As `named_parameters()` of transformers and timm gives them."""
    assert in_usual_order(sorted(names.split())) == names.split()
