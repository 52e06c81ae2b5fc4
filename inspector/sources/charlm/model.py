"""The model: its params, its initial weights, the forward pass, and loss with gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from inspector.floats import F32Array
from inspector.layout import Param
from inspector.sources.charlm.config import CharLmConfig
from inspector.sources.charlm.one_thread import one_blas_thread
from inspector.sources.charlm.operations import (
    FloatArray,
    FloatType,
    Operations,
    differentiable,
    rotation_table,
)
from inspector.sources.charlm.text import VOCABULARY, Tokens


def make_params(config: CharLmConfig) -> tuple[Param, ...]:
    """The params in the order of the forward pass; matrices are [in, out], the embedding [V, D]."""
    width, ffn = config.width, config.ffn
    params = [Param("embed.weight", (len(VOCABULARY), width))]
    for layer in range(config.layers):
        params += [
            Param(f"h.{layer}.attn_norm.weight", (width,)),
            Param(f"h.{layer}.attn.qkv.weight", (width, 3 * width)),
            Param(f"h.{layer}.attn.out.weight", (width, width)),
            Param(f"h.{layer}.ffn_norm.weight", (width,)),
            Param(f"h.{layer}.ffn.gate_up.weight", (width, 2 * ffn)),
            Param(f"h.{layer}.ffn.down.weight", (ffn, width)),
        ]
    return (*params, Param("norm.weight", (width,)))


def initial_weights(config: CharLmConfig) -> dict[str, F32Array]:
    """Norm gains are 1, all else is normal, with the standard deviations that trained best of those tried.

    These are 0.8/√in for a matrix, that by √(2·layers) less where a residual branch ends (as in GPT-2), and
    0.64/√width for the embedding: small enough that the first loss is near ln V, the loss of knowing nothing.
    """
    rng = np.random.default_rng([config.seed, 0])
    weights: dict[str, F32Array] = {}
    for param in make_params(config):
        if len(param.shape) == 1:
            weights[param.name] = np.ones(param.shape, dtype=np.float32)
            continue
        std = 0.8 / math.sqrt(param.shape[0])
        if param.name == "embed.weight":
            std = 0.64 / math.sqrt(config.width)
        elif param.name.endswith(("attn.out.weight", "ffn.down.weight")):
            std /= math.sqrt(2 * config.layers)
        weights[param.name] = rng.standard_normal(param.shape, dtype=np.float32) * np.float32(std)
    return weights


def logits(
    ops: Operations,
    config: CharLmConfig,
    weights: Mapping[str, FloatArray],
    one_hot: FloatArray,
    context: int,
) -> FloatArray:
    """The forward pass: one-hot tokens [N, V] in rows of `context` → scores of the next character [N, V]."""
    rotation = rotation_table(context, config.heads, config.head_size, one_hot.dtype)
    x = ops.embed(weights["embed.weight"], one_hot)
    for layer in range(config.layers):
        w = {name: weights[f"h.{layer}.{name}.weight"] for name in _LAYER_WEIGHTS}
        qkv = ops.rotate(ops.linear(ops.rms_norm(x, w["attn_norm"]), w["attn.qkv"]), rotation)
        attended = ops.weighted_values(ops.attention_weights(qkv, context, config.heads), qkv)
        x = ops.add(x, ops.linear(attended, w["attn.out"]))
        gated = ops.swiglu(ops.linear(ops.rms_norm(x, w["ffn_norm"]), w["ffn.gate_up"]))
        x = ops.add(x, ops.linear(gated, w["ffn.down"]))
    scores: FloatArray = ops.tied_head(ops.rms_norm(x, weights["norm.weight"]), weights["embed.weight"])
    return scores


_LAYER_WEIGHTS = ("attn_norm", "attn.qkv", "attn.out", "ffn_norm", "ffn.gate_up", "ffn.down")


def loss_and_gradients(
    config: CharLmConfig, weights: Mapping[str, FloatArray], batch: Tokens
) -> tuple[float, dict[str, FloatArray]]:
    """Mean loss in nats a character and its gradient by param name, of a batch [rows, context + 1].

    Grads have the shape and dtype of the weights. Weights that are not finite give NaN, no warning.
    """
    from autograd import make_vjp  # here for the reason given in differentiable()

    ops = differentiable()
    context = batch.shape[1] - 1
    dtype = weights["embed.weight"].dtype
    one_hot = one_hot_of(batch[:, :-1], dtype)
    targets = batch[:, 1:].ravel()

    def loss_of(traced: Mapping[str, FloatArray]) -> Any:
        return ops.cross_entropy(logits(ops, config, traced, one_hot, context), targets)

    with np.errstate(all="ignore"), one_blas_thread():
        backward, loss = make_vjp(loss_of)(dict(weights))
        gradients: dict[str, FloatArray] = backward(np.float64(1))
    return float(loss), gradients


def one_hot_of(tokens: Tokens, dtype: FloatType) -> FloatArray:
    """Tokens of any shape, N in all, as rows [N, V]."""
    return np.eye(len(VOCABULARY), dtype=dtype)[tokens.ravel()]
