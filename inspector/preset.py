"""Model shapes to lay out without any weights: the reference preset and plain synthetic ones."""

from __future__ import annotations

from inspector.layout import Param

GPT_116M = "gpt-116m"


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
