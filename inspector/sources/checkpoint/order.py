"""The order of params where a file does not keep it: as the modules of models in use are written, layers by number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

ORDERS: tuple[tuple[str, ...], ...] = (
    # Whole models: embeddings first, heads last.
    ("shared", "wte", "wpe", "drop", "h", "ln_f"),
    ("embeddings", "encoder", "pooler"),
    ("tok_embeddings", "layers", "norm", "output"),
    ("embed_tokens", "embed_positions", "layers", "final_layer_norm", "norm"),
    ("embed_in", "layers", "final_layer_norm"),
    ("cls_token", "pos_embed", "patch_embed", "blocks", "norm", "fc_norm", "head"),
    ("transformer", "model", "bert", "roberta", "encoder", "decoder", "gpt_neox", "lm_head", "embed_out", "cls",
     "classifier", "score", "head"),
    ("word_embeddings", "position_embeddings", "token_type_embeddings", "LayerNorm"),
    # Layers: GPT-2, Llama, GPT-NeoX, Meta's Llama, BERT, T5, ViT, nn.TransformerEncoderLayer, OPT.
    ("ln_1", "attn", "ln_2", "crossattention", "ln_cross_attn", "mlp"),
    ("self_attn", "mlp", "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
     "post_feedforward_layernorm"),
    ("input_layernorm", "post_attention_layernorm", "attention", "mlp"),
    ("attention", "feed_forward", "attention_norm", "ffn_norm"),
    ("attention", "crossattention", "intermediate", "output"),
    ("SelfAttention", "EncDecAttention", "DenseReluDense", "layer_norm"),
    ("norm1", "attn", "ls1", "norm2", "mlp", "ls2"),
    ("self_attn", "multihead_attn", "linear1", "linear2", "norm1", "norm2", "norm3"),
    ("self_attn", "self_attn_layer_norm", "fc1", "fc2", "final_layer_norm"),
    # Attention and feed-forward parts.
    ("self", "output"),
    ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"),
    ("k_proj", "v_proj", "q_proj", "out_proj"),
    ("c_attn", "q_attn", "c_proj"),
    ("c_fc", "c_proj"),
    ("qkv", "q_norm", "k_norm", "proj"),
    ("query_key_value", "dense"),
    ("query", "key", "value", "dense"),
    ("to_q", "to_k", "to_v", "to_out"),
    ("q", "k", "v", "o", "relative_attention_bias"),
    ("wq", "wk", "wv", "wo"),
    ("gate_proj", "up_proj", "down_proj"),
    ("dense_h_to_4h", "dense_4h_to_h"),
    ("wi", "wi_0", "wi_1", "wo"),
    ("in_proj_weight", "in_proj_bias", "out_proj"),
    ("dense", "LayerNorm"),
    # Params of one module.
    ("weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l"),
    ("weight", "bias"),
    ("lora_A", "lora_B"),
)  # fmt: skip
"""What stands side by side in a module, in the order in which it is registered. Source: the modules of PyTorch 2.13,
transformers and timm of those names."""
_LAYER = re.compile(r"(_l)(\d{1,6})(_reverse)?$")
_NUMBER = re.compile(r"(\d+)")


def in_usual_order(names: Iterable[str]) -> list[str]:
    """The names in the order that `named_parameters()` most likely has."""
    return [".".join(parts) for parts in _sorted([tuple(name.split(".")) for name in names])]


def _sorted(names: list[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Names that share all parts but these, child by child."""
    by_child: dict[str, list[tuple[str, ...]]] = {}
    for parts in names:
        by_child.setdefault(parts[0], []).append(parts[1:])
    order = _order_of(by_child)
    for child in sorted(
        by_child, key=lambda part: (_layer(part), order.get(_word(part), 99), _natural(part))
    ):
        rest = by_child[child]
        own = [parts for parts in rest if not parts]
        yield from ((child,) for _ in own)
        yield from ((child, *parts) for parts in _sorted([parts for parts in rest if parts]))


def _order_of(children: Iterable[str]) -> dict[str, int]:
    """The known order that has most of these children, at least two."""
    words = {_word(child) for child in children}
    best = max(ORDERS, key=lambda order: len(words.intersection(order)))
    return {word: i for i, word in enumerate(best)} if len(words.intersection(best)) > 1 else {}


def _word(part: str) -> str:
    """The part without the number of its layer, which recurrent modules write at its end, as in weight_ih_l0."""
    return _LAYER.sub(r"\1", part)


def _layer(part: str) -> tuple[int, bool]:
    found = _LAYER.search(part)
    return (int(found[2]), found[3] is not None) if found else (0, False)


def _natural(part: str) -> tuple[tuple[int, int, str], ...]:
    """Numbers sort as numbers, before words."""
    pieces = (piece for piece in _NUMBER.split(part) if piece)
    return tuple((0, int(p), "") if p.isdecimal() and len(p) < 19 else (1, 0, p) for p in pieces)
