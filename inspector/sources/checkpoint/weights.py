"""The weights in a document: where they lie, under which names, and what beside them is none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from inspector.sources.checkpoint.optimizer_state import is_optimizer
from inspector.tensor_tree import StoredTensor, TensorDocument, Tree, children, leaves

USUAL = (
    "model_state_dict", "state_dict", "model_state", "model", "module", "net", "network", "weights", "params",
    "ema", "model_ema",
)  # fmt: skip
"""Where people keep the weights of a model, the most usual first."""
GRADIENTS = ("grad", "grads", "gradients", "g")
BUFFERS = re.compile(
    r"(.*\.)?(running_mean|running_var|num_batches_tracked|inv_freq|position_ids|token_type_ids|masked_bias|"
    r"attn_mask|causal_mask|relative_position_index|total_ops|total_params)"
)
"""What modules keep beside their params, by the names that PyTorch and models in use give it."""
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_module")
"""What compiling, sharding and checkpointing put into names."""
MAX_NESTING = 3


@dataclass(frozen=True, slots=True)
class Weights:
    """Params by name in the order of the file; `ordered` where that is the order of the model.

    `remarks` say what was left out, each a sentence.
    """

    params: Mapping[str, StoredTensor]
    ordered: bool
    remarks: tuple[str, ...] = ()


def find_weights(document: TensorDocument) -> Weights | None:
    """The weights of a document; None where it holds none."""
    found = sorted(_candidates(document.tree), key=lambda each: each[0])
    if not found:
        return None
    _, place, node = found[0]
    kept, remarks = _params(node)
    if not kept:
        return None
    if len(found) > 1:
        others = ", ".join(repr(".".join(path)) for _, path, _ in found[1:4])
        remarks = (
            f"{document.path.name} holds several sets of weights: {'.'.join(place)!r} is taken, {others} "
            f"{'are' if len(found) > 2 else 'is'} left out.",
            *remarks,
        )
    return Weights(kept, document.ordered, remarks)


def find_gradients(document: TensorDocument) -> dict[str, StoredTensor]:
    """Gradients that stand in a document under a name of their own, by name of the param."""
    tree = document.tree
    found: dict[str, StoredTensor] = {}
    for key, child in children(tree):
        if key in GRADIENTS and isinstance(child, Mapping):
            found |= {clean(".".join(path)): leaf for path, leaf in leaves(child) if leaf.is_float}
    for path, leaf in leaves(tree):
        name = ".".join(path)
        if leaf.is_float and (base := _gradient_of(name)) is not None:
            found.setdefault(clean(base), leaf)
    return found


def clean(name: str) -> str:
    """A name without what wrappers put into it."""
    parts = [part for part in name.split(".") if part not in WRAPPERS]
    return ".".join(parts) or name


def _gradient_of(name: str) -> str | None:
    if name.startswith("g/") and len(name) > 2:
        return name[2:]
    if name.endswith(".grad") and len(name) > 5:
        return name[:-5]
    return None


def _candidates(
    tree: Tree, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[int, int], tuple[str, ...], Tree]]:
    """Parts of a tree that may be the weights, with what they are sorted by: the usual places, then the largest."""
    if isinstance(tree, StoredTensor) or is_optimizer(tree):
        return
    inner = [
        each
        for key, child in children(tree)
        if key not in GRADIENTS and len(path) < MAX_NESTING
        for each in _candidates(child, (*path, key))
    ]
    usual = [each for each in inner if each[0][0] < len(USUAL)]
    tensors = [child for _, child in children(tree) if isinstance(child, StoredTensor)]
    # Beside the weights of a model stand numbers of its training, such as a loss.
    direct = any(each.is_float and each.shape for each in tensors) or (bool(tensors) and not inner)
    if isinstance(tree, Mapping) and ((direct and not usual) or (len(inner) > 1 and not usual)):
        # Modules of one model may be nested by name.
        yield (_rank(path), -sum(each.numel for _, each in _own_leaves(tree))), path, tree
    else:
        yield from inner


def _rank(path: tuple[str, ...]) -> int:
    """The place among the usual ones; beyond them for any other name."""
    ranks = [USUAL.index(key) for key in path if key in USUAL]
    return min(ranks, default=len(USUAL) if path else 0)


def _own_leaves(tree: Tree) -> Iterator[tuple[tuple[str, ...], StoredTensor]]:
    """The tensors of a tree that belong to no optimizer and are no gradients."""
    for key, child in children(tree):
        if is_optimizer(child) or (key in GRADIENTS and isinstance(child, Mapping)):
            continue
        if isinstance(child, Mapping):
            yield from (((key, *path), leaf) for path, leaf in _own_leaves(child))
        else:
            yield from leaves(child, (key,))


def _params(node: Tree) -> tuple[dict[str, StoredTensor], tuple[str, ...]]:
    named: dict[str, StoredTensor] = {}
    other, buffers, ties = [], [], []
    memories: dict[object, str] = {}
    for path, leaf in _own_leaves(node):
        name = clean(".".join(path))
        if _gradient_of(name) is not None:
            continue
        if BUFFERS.fullmatch(name):
            buffers.append(name)
        elif not leaf.is_float:
            other.append(f"{name} ({leaf.dtype})")
        elif leaf.memory is not None and leaf.memory in memories and leaf.numel:
            ties.append((name, memories[leaf.memory]))
        else:
            if leaf.memory is not None:
                memories[leaf.memory] = name
            named[name] = leaf
    if named and all(name.startswith("module.") for name in named):
        named = {name.removeprefix("module."): leaf for name, leaf in named.items()}
    remarks = []
    if buffers:
        remarks.append(f"{_some(buffers)} {_are(buffers)} kept by modules and not trained: left out.")
    if other:
        remarks.append(f"{_some(other)} {_are(other)} of a type that no weights have: left out.")
    if ties:
        remarks.append(f"{ties[0][0]} shares its memory with {ties[0][1]}: a tied param is laid out once.")
    wide = [name for name, leaf in named.items() if leaf.dtype == "F64"]
    if wide:
        remarks.append(f"{_some(wide)} {_are(wide)} float64 in the file: rounded to float32.")
    return named, tuple(remarks)


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more"


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"
