"""The order of params where a file does not keep it: as modules are usually written, layers by number."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"(\d+)")
_USUAL = {
    word: place
    for order in (
        ("q", "k", "v", "o"),
        ("wq", "wk", "wv", "wo"),
        ("q_proj", "k_proj", "v_proj", "o_proj", "out_proj"),
        ("query", "key", "value"),
        ("to_q", "to_k", "to_v", "to_out"),
        ("gate_proj", "up_proj", "down_proj"),
        ("weight", "bias"),
        ("weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l"),
        ("kernel", "scale", "bias"),
    )
    for place, word in enumerate(order)
}
_FIRST = ("embed_tokens", "wte", "wpe", "embeddings", "embed", "tok_embeddings", "shared", "patch_embed")
_LAST = ("lm_head", "head", "output", "classifier", "score", "norm_f", "ln_f")


def usual_order(name: str) -> tuple[tuple[int, str, int], ...]:
    """What names are sorted by: embeddings first, heads last, numbers as numbers, q before k before v."""
    return tuple(_part(part) for part in name.split("."))


def _part(part: str) -> tuple[int, str, int]:
    pieces = _NUMBER.split(part)
    word = pieces[0]
    number = int(pieces[1]) if len(pieces) > 1 and len(pieces[1]) < 10 else -1
    if part in _FIRST:
        return -1, "", 0
    if part in _LAST:
        return 2, part, number
    if part in _USUAL or word in _USUAL:
        return 0, "", 100 * _USUAL.get(part, _USUAL.get(word, 0)) + number
    return (0 if number >= 0 and not word else 1), word, number
