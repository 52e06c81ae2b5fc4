"""What the files of a checkpoint hold together: weights, states joined with them, gradients, settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from inspector.errors import UsageError
from inspector.sources.checkpoint.families import adams_part
from inspector.sources.checkpoint.files import LoadPickled, open_documents
from inspector.sources.checkpoint.flat_state import split_flat
from inspector.sources.checkpoint.join import join, saved_names
from inspector.sources.checkpoint.optimizer_state import (
    SavedOptimizer,
    SavedState,
    find_optimizers,
    holds_bare_states,
    joined,
    read_optimizer,
)
from inspector.sources.checkpoint.settings import Settled, settle
from inspector.sources.checkpoint.weights import Weights, clean, find_gradients, find_weights
from inspector.tensor_tree import StoredTensor, TensorDocument


@dataclass(frozen=True, slots=True)
class Contents:
    """`weights` by name in the order of params, those of `missing` being zeros; `states` and `gradients` by name."""

    weights: Mapping[str, StoredTensor]
    missing: frozenset[str]
    states: Mapping[str, SavedState]
    gradients: Mapping[str, StoredTensor]
    settled: Settled | None
    remarks: tuple[str, ...]


def read_contents(paths: Sequence[Path], load: LoadPickled) -> Contents:
    """UsageError, in a sentence that names file and param, for what does not fit together."""
    documents, names = open_documents(paths, load)
    file = paths[0].name if len(paths) == 1 else " + ".join(path.name for path in paths)
    optimizer, documents = _optimizer(documents)
    gradients = {name: each for document in documents for name, each in find_gradients(document).items()}
    found = _weights(documents, file, names)
    if found is None and optimizer is None:
        raise UsageError(f"{file} holds neither weights nor the state of an optimizer.")
    remarks = [] if found is None else list(found.remarks)
    remarks += [
        f"{document.path.name} holds states of an optimizer and no param_groups, which say whose they are: left out."
        for document in documents
        if holds_bare_states(document.tree)
    ]
    if found is None:
        assert optimizer is not None
        weights, missing = _of_states(optimizer, remarks)
        keys = dict(zip(weights, (k for k in optimizer.keys if _has_shape(optimizer, k)), strict=True))
    else:
        weights, missing, keys = dict(found.params), frozenset[str](), {}
        if optimizer is not None:
            shapes = {name: tensor.shape for name, tensor in weights.items()}
            made = join(shapes, optimizer, ordered=found.ordered, file=file, listed=names is not None)
            keys = dict(made.keys)
            remarks += made.remarks
    states, settled = {}, None
    if optimizer is not None:
        shapes = {name: tensor.shape for name, tensor in weights.items()}
        part = adams_part(optimizer, keys)
        optimizer, keys = part.optimizer, dict(part.keys)
        settled = settle(shapes, optimizer, keys, others=part.others)
        remarks += (*part.remarks, *settled.remarks)
        states = {n: optimizer.states[k] for n, k in keys.items() if k in optimizer.states}
    return Contents(weights, missing, states, _fitting(gradients, weights, file), settled, tuple(remarks))


def _optimizer(documents: Sequence[TensorDocument]) -> tuple[SavedOptimizer | None, list[TensorDocument]]:
    """The optimizers of all documents as one, and the documents without what was theirs."""
    found: list[SavedOptimizer] = []
    rest: list[TensorDocument] = []
    for document in documents:
        for path, node in find_optimizers(document.tree):
            place = f", {'.'.join(path)}" if path else ""
            found.append(read_optimizer(node, f"{document.path.name}{place}"))
        flat = document.tree
        if isinstance(flat, Mapping) and flat and all(isinstance(v, StoredTensor) for v in flat.values()):
            state, left = split_flat(flat, document.path.name)
            if state is not None:
                found.append(state)
                document = TensorDocument(document.path, document.format, left, document.ordered)
        rest.append(document)
    usable = [each for each in found if each.keys]
    return (joined(usable) if usable else None), rest


def _weights(documents: Sequence[TensorDocument], file: str, names: Sequence[str] | None) -> Weights | None:
    params: dict[str, StoredTensor] = {}
    remarks: list[str] = []
    ordered = True
    places: dict[str, str] = {}
    for document in documents:
        found = find_weights(document)
        if found is None:
            continue
        both = next((name for name in found.params if name in params), None)
        if both is not None:
            raise UsageError(f"{places[both]} and {document.path.name} both hold {both!r}: name one of them.")
        params |= found.params
        places |= dict.fromkeys(found.params, document.path.name)
        remarks += found.remarks
        ordered = ordered and found.ordered
    if not params:
        return None
    if names is not None:
        params, ordered = _listed(params, names, file), True
    return Weights(params, ordered, tuple(remarks))


def _listed(params: dict[str, StoredTensor], names: Sequence[str], file: str) -> dict[str, StoredTensor]:
    """The params in the order of a list of names, those that it leaves out behind them."""
    by_name = {clean(name): name for name in params}
    order = []
    for name in names:
        known = by_name.get(clean(name))
        if known is None:
            raise UsageError(f"{file}: the list of names has {name!r}, and the weights have no such param.")
        order.append(known)
    return {name: params[name] for name in dict.fromkeys((*order, *params))}


def _has_shape(optimizer: SavedOptimizer, key: object) -> bool:
    return key in optimizer.states and optimizer.states[key].shape is not None  # type: ignore[index]


def _of_states(
    optimizer: SavedOptimizer, remarks: list[str]
) -> tuple[dict[str, StoredTensor], frozenset[str]]:
    """Weights of 0 in the shapes of the states, for an optimizer that came without its model."""
    names = saved_names(optimizer) or {}
    weights: dict[str, StoredTensor] = {}
    for i, key in enumerate(optimizer.keys):
        if not _has_shape(optimizer, key):
            continue
        shape = optimizer.states[key].shape
        assert shape is not None
        weights[names.get(key, f"param.{i}")] = StoredTensor(
            shape, "F32", partial(np.zeros, shape, np.float32)
        )
    if not weights:
        raise UsageError(
            f"{optimizer.where} keeps no moments, and no weights stand beside it: name the file of the weights, as in "
            "model.safetensors+optimizer.pt."
        )
    remarks.append(
        f"{optimizer.where} came without its weights, which are taken as 0: name both files, as in "
        "model.safetensors+optimizer.pt."
    )
    return weights, frozenset(weights)


def _fitting(
    gradients: Mapping[str, StoredTensor], weights: Mapping[str, StoredTensor], file: str
) -> dict[str, StoredTensor]:
    for name, gradient in gradients.items():
        weight = weights.get(name)
        if weight is None:
            raise UsageError(f"{file} holds a gradient of {name!r}, and the weights have no such param.")
        if gradient.shape != weight.shape:
            raise UsageError(
                f"{file}: the gradient of {name!r} has the shape {list(gradient.shape)}, its weights "
                f"{list(weight.shape)}."
            )
    return dict(gradients)
