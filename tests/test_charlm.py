"""The live model: its gradients against finite differences, its bits, its text, and that it learns."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspector.errors import UsageError
from inspector.floats import F32Array, bits
from inspector.schedule import Schedule
from inspector.sources.base import Source
from inspector.sources.charlm import model, operations, text
from inspector.sources.charlm.config import CharLmConfig
from inspector.sources.charlm.source import CharLm
from inspector.sources.charlm.text import VOCABULARY

SMALL = CharLmConfig(width=8, layers=2, heads=2, context=5, rows=3, ffn=6, seed=7)
V = len(VOCABULARY)


@pytest.fixture(scope="module")
def source() -> CharLm:
    return CharLm()


def shaped_weights(source: CharLm) -> dict[str, F32Array]:
    state = source.initial_state()
    return {p.name: np.reshape(state.w[p.name], p.shape) for p in source.params}


# ------------------------------------------------------------------------------------------------ gradients


def central_difference(function: Callable[[Any], float], x: Any, h: float = 1e-6) -> Any:
    """The gradient of a scalar function at a float64 array, element by element."""
    gradient = np.empty_like(x)
    for index in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[index] += h
        down[index] -= h
        gradient[index] = (function(up) - function(down)) / (2 * h)
    return gradient


def normal(*shape: int) -> Any:
    return np.random.default_rng(list(shape)).standard_normal(shape)


ONE_HOT = np.eye(V)[[3, 90, 3, 0]]
ROTATION = operations.rotation_table(5, 2, 4, np.dtype(np.float64))
TARGETS = np.array([1, 0, 6, 6], dtype=np.uint8)
OPERATIONS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    # name: (arguments with a gradient, the others)
    "embed": ((normal(V, 3),), (ONE_HOT,)),
    "linear": ((normal(4, 3), normal(3, 5)), ()),
    "rms_norm": ((normal(4, 8), normal(8)), ()),
    "rotate": ((normal(10, 24),), (ROTATION,)),
    "attention_weights": ((normal(10, 24),), (5, 2)),
    "weighted_values": ((normal(2, 2, 5, 5), normal(10, 24)), ()),
    "swiglu": ((normal(4, 12),), ()),
    "add": ((normal(4, 3), normal(3, 4).T), ()),
    "tied_head": ((normal(4, 3), normal(9, 3)), ()),
    "cross_entropy": ((normal(4, 7),), (TARGETS,)),
}


def test_every_operation_is_checked() -> None:
    assert tuple(OPERATIONS) == operations.Operations._fields


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_has_the_gradient_of_finite_differences(name: str) -> None:
    arrays, others = OPERATIONS[name]
    operation = getattr(operations.PLAIN, name)
    result = operation(*arrays, *others)
    g = normal(*np.shape(result)) if np.shape(result) else np.float64(1.7)
    grads = getattr(operations.GRADS, name)(g, result, *arrays, *others)
    assert len(grads) == len(arrays)
    for position, array in enumerate(arrays):

        def weighted_sum(x: Any, position: int = position) -> float:
            args = [*arrays[:position], x, *arrays[position + 1 :], *others]
            return float(np.sum(g * operation(*args)))

        np.testing.assert_allclose(
            grads[position], central_difference(weighted_sum, array), rtol=1e-6, atol=1e-8
        )


def test_the_model_has_the_gradient_of_finite_differences() -> None:
    weights = {p.name: 0.5 * normal(*p.shape) + (len(p.shape) == 1) for p in model.make_params(SMALL)}
    batch = np.random.default_rng(1).integers(0, V, (SMALL.rows, SMALL.context + 1)).astype(np.uint8)
    _, gradients = model.loss_and_gradients(SMALL, weights, batch)

    for name in weights:

        def loss(x: Any, name: str = name) -> float:
            return model.loss_and_gradients(SMALL, weights | {name: x}, batch)[0]

        direction = normal(*weights[name].shape)
        h = 1e-6
        expected = (loss(weights[name] + h * direction) - loss(weights[name] - h * direction)) / (2 * h)
        assert gradients[name].dtype == np.float64
        assert np.sum(gradients[name] * direction) == pytest.approx(expected, rel=1e-6), name


def test_float32_gradients_are_those_of_float64_up_to_rounding(source: CharLm) -> None:
    weights = shaped_weights(source)
    loss32, gradients32 = model.loss_and_gradients(source.config, weights, source.batch(1))
    weights64 = {name: w.astype(np.float64) for name, w in weights.items()}
    loss64, gradients64 = model.loss_and_gradients(source.config, weights64, source.batch(1))
    assert loss32 == pytest.approx(loss64, rel=1e-6)
    for name, g in gradients64.items():
        assert np.linalg.norm(gradients32[name] - g) < 1e-5 * np.linalg.norm(g), name


# ---------------------------------------------------------------------------------------------------- model


def test_attention_sees_no_later_character() -> None:
    weights = {p.name: normal(*p.shape) for p in model.make_params(SMALL)}
    tokens = np.array([5, 6, 7, 8, 9])
    changed = np.array([5, 6, 7, 50, 51])

    def scores(row: Any) -> Any:
        return model.logits(operations.PLAIN, SMALL, weights, np.eye(V)[row], SMALL.context)

    np.testing.assert_array_equal(scores(tokens)[:3], scores(changed)[:3])
    assert not np.allclose(scores(tokens)[3:], scores(changed)[3:])


def test_rotated_products_depend_on_distance_alone() -> None:
    """The property RoPE is made for: q·k of positions 3 and 1 equals that of 6 and 4."""
    table = operations.rotation_table(8, 1, 4, np.dtype(np.float64))
    q, k, _ = operations.rotate(np.tile(normal(12), (8, 1)), table).reshape(8, 3, 4).swapaxes(0, 1)
    products = q @ k.T
    assert products[3, 1] == pytest.approx(products[6, 4], rel=1e-12)
    assert products[3, 1] != pytest.approx(products[6, 3], rel=1e-3)


def test_attention_weights_add_up_to_one_and_start_with_the_character_itself() -> None:
    weights = operations.attention_weights(normal(10, 24), 5, 2)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-12)
    np.testing.assert_array_equal(weights[:, :, 0], np.broadcast_to(np.eye(5)[0], (2, 2, 5)))


def test_a_model_of_zeros_knows_nothing() -> None:
    weights = {p.name: np.zeros(p.shape, np.float32) for p in model.make_params(SMALL)}
    loss, gradients = model.loss_and_gradients(SMALL, weights, CharLm(SMALL).batch(1))
    assert loss == pytest.approx(math.log(V), rel=1e-6)
    assert all(np.isfinite(g).all() for g in gradients.values())


# --------------------------------------------------------------------------------------------------- source


def test_it_is_a_source_with_the_names_of_the_field(source: CharLm) -> None:
    as_source: Source = source
    assert [(p.name, p.shape, p.block) for p in as_source.params[:7]] == [
        ("embed.weight", (97, 64), "wd"),
        ("h.0.attn_norm.weight", (64,), "no_wd"),
        ("h.0.attn.qkv.weight", (64, 192), "wd"),
        ("h.0.attn.out.weight", (64, 64), "wd"),
        ("h.0.ffn_norm.weight", (64,), "no_wd"),
        ("h.0.ffn.gate_up.weight", (64, 344), "wd"),
        ("h.0.ffn.down.weight", (172, 64), "wd"),
    ]
    assert source.params[-1].name == "norm.weight"
    assert len(source.params) == 14
    assert source.config.elements == sum(p.numel for p in source.params) == 105_344
    assert source.last_step is None
    assert source.name == "charlm"
    assert "105,344" in source.description


def test_state_and_gradients_are_flat_float32_by_param_name(source: CharLm) -> None:
    state = source.initial_state()
    assert (dict(state.m), dict(state.v), state.finished_steps) == ({}, {}, 0)
    reads = []

    def read_weights() -> dict[str, F32Array]:
        reads.append(1)
        return shaped_weights(source)

    gradients = source.gradients(1, read_weights)
    assert len(reads) == 1
    assert isinstance(gradients.loss, float)
    for values in (state.w, gradients.values):
        assert set(values) == {p.name for p in source.params}
        for param in source.params:
            array = values[param.name]
            assert array.dtype == np.float32
            assert array.shape == (param.numel,)
            assert array.flags.c_contiguous


def test_the_same_step_and_weights_give_the_same_bits(source: CharLm) -> None:
    weights = shaped_weights(source)
    first = source.gradients(5, lambda: weights)
    for _ in range(5):
        source.gradients(6, lambda: weights)
        again = CharLm().gradients(5, lambda: {name: w.copy() for name, w in weights.items()})
        assert again.loss == first.loss
        for name, g in first.values.items():
            np.testing.assert_array_equal(bits(again.values[name]), bits(g))


def test_weights_are_left_alone(source: CharLm) -> None:
    weights = shaped_weights(source)
    for w in weights.values():
        w.setflags(write=False)
    source.gradients(1, lambda: weights)


def test_steps_and_seeds_differ(source: CharLm) -> None:
    assert not np.array_equal(source.batch(1), source.batch(2))
    other = CharLm(CharLmConfig(seed=1))
    assert not np.array_equal(source.batch(1), other.batch(1))
    assert not np.array_equal(
        source.initial_state().w["embed.weight"], other.initial_state().w["embed.weight"]
    )


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("name", ["embed.weight", "h.0.attn.qkv.weight", "h.1.ffn_norm.weight"])
def test_weights_that_are_not_finite_give_no_warning(source: CharLm, name: str, poison: float) -> None:
    weights = shaped_weights(source)
    weights[name] = np.full_like(weights[name], poison)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradients = source.gradients(1, lambda: weights)
        assert len(source.sample(weights, 3)) == 3
    assert gradients.loss is not None
    if not math.isfinite(poison):
        assert math.isnan(gradients.loss)


def test_an_untrained_model_starts_near_the_logarithm_of_the_vocabulary(source: CharLm) -> None:
    loss = source.gradients(1, lambda: shaped_weights(source)).loss
    assert loss == pytest.approx(math.log(V), rel=0.03)


def test_sixty_steps_of_adamw_lower_the_loss(source: CharLm) -> None:
    w = shaped_weights(source)
    m = {name: np.zeros_like(x) for name, x in w.items()}
    v = {name: np.zeros_like(x) for name, x in w.items()}
    hyper = source.hyper
    losses = []
    for t in range(1, 61):
        gradients = source.gradients(t, lambda: w)
        losses.append(gradients.loss or math.nan)
        norm = math.sqrt(sum(float(np.dot(g, g)) for g in gradients.values.values()))
        clip = np.float32(min(1, hyper.max_grad_norm / norm))
        lr = np.float32(hyper.lr * source.schedule.factor(t))
        for name, flat in gradients.values.items():
            g = clip * flat.reshape(w[name].shape)
            m[name] = np.float32(hyper.beta1) * m[name] + np.float32(1 - hyper.beta1) * g
            v[name] = np.float32(hyper.beta2) * v[name] + np.float32(1 - hyper.beta2) * g * g
            m_hat = m[name] / np.float32(1 - hyper.beta1**t)
            v_hat = v[name] / np.float32(1 - hyper.beta2**t)
            decay = np.float32(hyper.weight_decay if w[name].ndim >= 2 else 0)
            w[name] = w[name] - lr * (m_hat / (np.sqrt(v_hat) + np.float32(hyper.eps)) + decay * w[name])
    assert losses[0] == pytest.approx(math.log(V), rel=0.03)
    assert np.mean(losses[-5:]) < 3.4


def test_the_schedule_is_a_warm_up_unless_another_is_given(source: CharLm) -> None:
    assert [source.schedule.factor(t) for t in (1, 50, 100, 5000)] == [0.01, 0.5, 1.0, 1.0]
    assert CharLm(schedule=Schedule()).schedule.factor(1) == 1.0


def test_a_sample_depends_on_weights_and_seed_alone(source: CharLm) -> None:
    weights = shaped_weights(source)
    text = source.sample(weights, 80, seed=3)
    assert len(text) == 80
    assert set(text) <= set(VOCABULARY)
    assert source.sample(weights, 80, seed=3) == text
    assert source.sample(weights, 80, seed=4) != text


def test_importing_it_does_not_import_autograd() -> None:
    code = "import sys, inspector.sources.charlm.source; sys.exit('autograd' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ----------------------------------------------------------------------------------------------------- text


def test_the_vocabulary_is_newline_printable_ascii_and_one_more() -> None:
    assert V == len(set(VOCABULARY)) == 97
    assert VOCABULARY[:3] == "\n !"
    assert VOCABULARY[-2:] == "~\N{REPLACEMENT CHARACTER}"


def test_one_character_is_one_token() -> None:
    assert text.decode(text.encode(VOCABULARY.encode())) == VOCABULARY
    assert text.decode(text.encode("a\r\nß\t€\N{GRINNING FACE}b".encode())) == "a\n\ufffd\ufffd\ufffd\ufffdb"


def test_text_is_a_shuffle_of_the_source_files_without_tests(tmp_path: Path) -> None:
    for name, written in {
        "one.py": "1111",
        "package/two.py": "2222",
        "test/three.py": "3333",
        "package/site-packages/four.py": "4444",
        "five.txt": "5555",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(written)
    texts = {text.decode(text.read_text(tmp_path, seed)) for seed in range(10)}
    assert texts == {"11112222", "22221111"}
    assert text.read_text(tmp_path, 0, limit=6).size == 6


@pytest.mark.parametrize("folder", ["absent", "python311.zip"])
def test_a_standard_library_without_sources_is_explained(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python311.zip").write_bytes(b"PK")
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path / folder)})
    with pytest.raises(UsageError, match="source files of Python's standard library"):
        CharLm()


def test_too_short_a_text_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "short.py").write_text("x = 1\n")
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(UsageError, match="too few"):
        CharLm().batch(1)


# -------------------------------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("spec", "config"),
    [
        ("charlm", CharLmConfig()),
        (
            "charlm:width=128,layers=4,heads=8,context=128,rows=16,ffn=344,seed=1",
            CharLmConfig(width=128, layers=4, heads=8, context=128, rows=16, ffn=344, seed=1),
        ),
        ("charlm:seed=3", CharLmConfig(seed=3)),
    ],
)
def test_a_spec_reads_back_as_the_name_of_its_source(spec: str, config: CharLmConfig) -> None:
    source = CharLm.from_text(spec)
    assert source.config == config
    assert source.name == spec


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("gpt", "is not a live model"),
        ("charlm:", "is not a live model"),
        ("charlm:width", "whole number"),
        ("charlm:width=wide", "whole number"),
        ("charlm:width=12.5", "whole number"),
        ("charlm:depth=2", "no option 'depth'"),
        ("charlm:width=64,", "no option ''"),
        ("charlm:rows=4,rows=4", "twice"),
        ("charlm:rows=0", "rows=0"),
        ("charlm:layers=-1", "layers=-1"),
        ("charlm:seed=-1", "seed=-1"),
        ("charlm:width=66", "multiple of heads"),
        ("charlm:width=20,heads=4", "odd size 5"),
        ("charlm:width=1000000", "from 1 to 4096"),
        ("charlm:width=4096,layers=64,ffn=16384", "make its sizes smaller"),
        ("charlm:context=4096,rows=1024", "make its sizes smaller"),
    ],
)
def test_bad_sizes_are_explained_in_one_sentence(spec: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        CharLm.from_text(spec)
    assert "\n" not in str(caught.value)
