"""Model shapes to lay out without any weights: the reference preset and plain synthetic ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

from inspector.layout import Param
from inspector.stepping import GeneratedGradients, GeneratedState

GPT_116M = "gpt-116m"

ELEMENTS_A_PARAM = 1 << 20
MAX_PARAMS = 256


def llama_params(*, vocabulary: int, width: int, layers: int, ffn: int) -> tuple[Param, ...]:
    """The params of a Llama-shaped model with tied head: embedding, per layer two norms and four matrices."""
    params = [Param("embed.weight", (vocabulary, width))]
    for i in range(layers):
        params += [
            Param(f"h.{i}.attn_norm.weight", (width,)),
            Param(f"h.{i}.attn.qkv.weight", (width, 3 * width)),
            Param(f"h.{i}.attn.out.weight", (width, width)),
            Param(f"h.{i}.ffn_norm.weight", (width,)),
            Param(f"h.{i}.ffn.gate_up.weight", (width, 2 * ffn)),
            Param(f"h.{i}.ffn.down.weight", (ffn, width)),
        ]
    return (*params, Param("norm.weight", (width,)))


def gpt_116m_params() -> tuple[Param, ...]:
    """The reference: 74 params, 116,017,920 elements, 49 with decay and 25 without."""
    return llama_params(vocabulary=40_448, width=768, layers=12, ffn=2048)


def synthetic_params(elements: int) -> tuple[Param, ...]:
    """Params of `elements` elements in all: matrices of about 2**20 elements with decay, then a vector without."""
    if elements < 4096:
        return (Param("layer.0.bias", (elements,)),)
    matrices = elements - elements // 1024
    count = min(max(matrices // ELEMENTS_A_PARAM, 1), MAX_PARAMS)
    columns = min(1024, matrices // count)
    rows = matrices // count // columns
    params = [Param(f"layer.{i}.weight", (rows, columns)) for i in range(count)]
    return (*params, Param("bias", (elements - count * rows * columns,)))


def drawn_state(params: Sequence[Param], seed: int) -> GeneratedState:
    """Weights as at a model's start: matrices with standard deviation 0.02, norm gains and vectors 1; m = v = 0."""
    return GeneratedState(seed, {p.name: (0.0, 0.02) if len(p.shape) >= 2 else (1.0, 0.0) for p in params})


def drawn_gradients(params: Sequence[Param], seed: int, step: int) -> GeneratedGradients:
    """Gradients of one step; their scale falls with the param's size, as that of a mean over more elements does."""
    return GeneratedGradients(seed, step, {p.name: (0.0, 1e-2 / math.sqrt(max(p.numel, 1))) for p in params})
