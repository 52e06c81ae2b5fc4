"""The operations of the model, each with its gradients, as plain functions and as autograd primitives.

Each is a pair of plain functions. `op(*args)` gives the result; `op_grads(g, result, *args)` gives the gradients of the
arguments that have one, which come first, from the gradient `g` of the result. N is the number of tokens,
rows · context; matrices are [in, out]. Results have the dtype of the arguments: float32, and float64 in tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inspector.sources.charlm.text import Tokens

FloatArray = npt.NDArray[np.floating[Any]]
ComplexArray = npt.NDArray[np.complexfloating[Any, Any]]
FloatType = np.dtype[np.floating[Any]]
Grads = tuple[FloatArray, ...]

RMS_EPS = 1e-5


def embed(table: FloatArray, one_hot: FloatArray) -> FloatArray:
    """Rows of the embedding: [V, D] and one-hot tokens [N, V] → [N, D]."""
    rows: FloatArray = table[one_hot.argmax(axis=1)]
    return rows


def embed_grads(g: FloatArray, result: FloatArray, table: FloatArray, one_hot: FloatArray) -> Grads:
    """A matrix product adds up the rows of equal tokens faster than a scatter, and in a fixed order."""
    return (one_hot.T @ g,)


def linear(x: FloatArray, weight: FloatArray) -> FloatArray:
    """[N, in] and [in, out] → [N, out]."""
    return x @ weight


def linear_grads(g: FloatArray, result: FloatArray, x: FloatArray, weight: FloatArray) -> Grads:
    return g @ weight.T, x.T @ g


def rms_norm(x: FloatArray, gain: FloatArray) -> FloatArray:
    """x / √(mean x² + ε) · gain over the last axis: [N, D] and [D] → [N, D]."""
    return x * _inverse_rms(x) * gain


def rms_norm_grads(g: FloatArray, result: FloatArray, x: FloatArray, gain: FloatArray) -> Grads:
    inverse = _inverse_rms(x)
    normed = x * inverse
    from_norm = g * gain
    along_x = np.einsum("nd,nd->n", from_norm, normed)[:, None] / x.shape[1]
    return (from_norm - normed * along_x) * inverse, np.einsum("nd,nd->d", g, normed)


def _inverse_rms(x: FloatArray) -> FloatArray:
    mean_square = np.einsum("nd,nd->n", x, x) / x.shape[1]
    inverse: FloatArray = 1 / np.sqrt(mean_square + RMS_EPS)
    return inverse[:, None]


def rotate(qkv: FloatArray, rotation: ComplexArray) -> FloatArray:
    """Rotary positions: [N, 3·D] with neighbours (2i, 2i+1) as complex numbers, times [context, 3·D/2]."""
    pairs = qkv.view(rotation.dtype).reshape(-1, *rotation.shape)
    rotated: FloatArray = (pairs * rotation).view(qkv.dtype)
    return rotated.reshape(qkv.shape)


def rotate_grads(g: FloatArray, result: FloatArray, qkv: FloatArray, rotation: ComplexArray) -> Grads:
    return (rotate(g, rotation.conj()),)


@lru_cache(maxsize=8)
def rotation_table(context: int, heads: int, head_size: int, dtype: FloatType) -> ComplexArray:
    """e^(iθ) by position and pair, θ = position · 10000^(-2i / head size), for q, k and v side by side.

    q is scaled by 1/√(head size) on the way, which attention asks for; v is left as it is. [context, 3·D/2].
    """
    frequency = 10000.0 ** (-np.arange(0, head_size, 2) / head_size)
    turn = np.exp(1j * np.arange(context)[:, None] * np.tile(frequency, heads))
    table = np.concatenate([turn / np.sqrt(head_size), turn, np.ones_like(turn)], axis=1)
    table = table.astype(np.result_type(dtype, np.complex64))
    table.setflags(write=False)
    return table


def attention_weights(qkv: FloatArray, context: int, heads: int) -> FloatArray:
    """Causal softmax of q·k: rotated qkv [N, 3·D] → [rows, heads, context, context]."""
    q, k, _ = _split_heads(qkv, context, heads)
    scores = q @ k.swapaxes(-1, -2)
    scores += _causal_mask(context, qkv.dtype)
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


def attention_weights_grads(
    g: FloatArray, result: FloatArray, qkv: FloatArray, context: int, heads: int
) -> Grads:
    q, k, _ = _split_heads(qkv, context, heads)
    scores = g - np.einsum("rhqk,rhqk->rhq", g, result)[..., None]
    scores *= result
    grads = np.zeros_like(qkv)
    for_q, for_k, _ = _split_heads(grads, context, heads)
    np.matmul(scores, k, out=for_q)
    np.matmul(scores.swapaxes(-1, -2), q, out=for_k)
    return (grads,)


def weighted_values(weights: FloatArray, qkv: FloatArray) -> FloatArray:
    """What every head reads: weights [rows, heads, context, context] and qkv [N, 3·D] → [N, D]."""
    _, heads, context, _ = weights.shape
    v = _split_heads(qkv, context, heads)[2]
    out = np.empty((qkv.shape[0], qkv.shape[1] // 3), dtype=qkv.dtype)
    np.matmul(weights, v, out=_by_head(out, context, heads))
    return out


def weighted_values_grads(g: FloatArray, result: FloatArray, weights: FloatArray, qkv: FloatArray) -> Grads:
    _, heads, context, _ = weights.shape
    v = _split_heads(qkv, context, heads)[2]
    g_heads = _by_head(g, context, heads)
    grads = np.zeros_like(qkv)
    np.matmul(weights.swapaxes(-1, -2), g_heads, out=_split_heads(grads, context, heads)[2])
    return g_heads @ v.swapaxes(-1, -2), grads


def _by_head(x: FloatArray, context: int, heads: int) -> FloatArray:
    """A view of [N, D] as [rows, heads, context, head size]."""
    return x.reshape(-1, context, heads, x.shape[1] // heads).swapaxes(1, 2)


def _split_heads(qkv: FloatArray, context: int, heads: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Views of q, k and v, each [rows, heads, context, head size]."""
    head_size = qkv.shape[1] // (3 * heads)
    q, k, v = qkv.reshape(-1, context, 3, heads, head_size).transpose(2, 0, 3, 1, 4)
    return q, k, v


@lru_cache(maxsize=8)
def _causal_mask(context: int, dtype: FloatType) -> FloatArray:
    mask = np.triu(np.full((context, context), -np.inf, dtype=dtype), 1)
    mask.setflags(write=False)
    return mask


def swiglu(gate_up: FloatArray) -> FloatArray:
    """silu(gate) · up: gate and up side by side [N, 2·F] → [N, F]."""
    gate, up = np.split(gate_up, 2, axis=1)
    return gate * _sigmoid(gate) * up


def swiglu_grads(g: FloatArray, result: FloatArray, gate_up: FloatArray) -> Grads:
    gate, up = np.split(gate_up, 2, axis=1)
    sigmoid = _sigmoid(gate)
    silu = gate * sigmoid
    grads = np.empty_like(gate_up)
    for_gate, for_up = np.split(grads, 2, axis=1)
    np.multiply(g, silu, out=for_up)
    np.multiply(g * up, sigmoid + silu * (1 - sigmoid), out=for_gate)
    return (grads,)


def _sigmoid(x: FloatArray) -> FloatArray:
    result: FloatArray = 1 / (1 + np.exp(-x))
    return result


def tied_head(x: FloatArray, table: FloatArray) -> FloatArray:
    """Logits from the embedding: [N, D] and [V, D] → [N, V]."""
    return x @ table.T


def tied_head_grads(g: FloatArray, result: FloatArray, x: FloatArray, table: FloatArray) -> Grads:
    return g @ table, g.T @ x


def cross_entropy(logits: FloatArray, targets: Tokens) -> np.float64:
    """-log softmax at the targets [N], in the dtype of the logits [N, V]; their mean in float64, in nats."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(shifted).sum(axis=1))
    losses = log_sum - shifted[np.arange(targets.size), targets]
    return np.float64(losses.mean(dtype=np.float64))


def cross_entropy_grads(g: np.float64, result: np.float64, logits: FloatArray, targets: Tokens) -> Grads:
    grads = logits - logits.max(axis=1, keepdims=True)
    np.exp(grads, out=grads)
    grads /= grads.sum(axis=1, keepdims=True)
    grads[np.arange(targets.size), targets] -= 1
    grads *= float(g) / targets.size
    return (grads,)


def add(x: FloatArray, y: FloatArray) -> FloatArray:
    """The residual connection."""
    return x + y


def add_grads(g: FloatArray, result: FloatArray, x: FloatArray, y: FloatArray) -> Grads:
    return g, g


Function = Callable[..., Any]


class Operations(NamedTuple):
    """The operations the model is written in: the plain functions, or the same as autograd primitives."""

    embed: Function
    linear: Function
    rms_norm: Function
    rotate: Function
    attention_weights: Function
    weighted_values: Function
    swiglu: Function
    add: Function
    tied_head: Function
    cross_entropy: Function


PLAIN = Operations(
    embed, linear, rms_norm, rotate, attention_weights, weighted_values, swiglu, add, tied_head, cross_entropy
)
GRADS = Operations(
    embed_grads,
    linear_grads,
    rms_norm_grads,
    rotate_grads,
    attention_weights_grads,
    weighted_values_grads,
    swiglu_grads,
    add_grads,
    tied_head_grads,
    cross_entropy_grads,
)


@cache
def differentiable() -> Operations:
    """The operations as autograd primitives; imported on first use, for it would slow down every start."""
    from autograd.extend import defvjp_argnums, primitive

    def with_grads(operation: Function, grads: Function) -> Function:
        def backward_of(
            argnums: Sequence[int], result: Any, args: Sequence[Any], _: dict[str, Any]
        ) -> Function:
            def backward(g: Any) -> list[Any]:
                of_args = grads(g, result, *args)
                return [of_args[argnum] for argnum in argnums]

            return backward

        traced: Function = primitive(operation)
        defvjp_argnums(traced, backward_of)
        return traced

    return Operations(*map(with_grads, PLAIN, GRADS))
