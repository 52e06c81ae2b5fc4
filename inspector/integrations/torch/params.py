"""What an optimizer of PyTorch is, seen from here: its params by name, their settings, and what it computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from inspector.errors import UsageError
from inspector.hyper import Numerics
from inspector.layout import Param
from inspector.plan import Variant
from inspector.session.records import Shard

Tensor = Any
Optimizer = Any
DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.float64: "f64"}
_LONG = {"bf16": "bfloat16", "f16": "float16", "f64": "float64"}
NAMED = 3
"""So many params are named in a sentence about several."""


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A param of the optimizer: `param` as it stands in `group`; `sharded` where this process keeps a part of it."""

    name: str
    param: Tensor
    group: int
    sharded: bool
    shard: Shard | None

    def local(self, tensor: Tensor | None) -> Tensor | None:
        """The part that this process keeps of a tensor that is like the param."""
        if tensor is None:
            return None
        if self.sharded and hasattr(tensor, "to_local"):
            tensor = tensor.to_local()
        return tensor.to_dense() if tensor.is_sparse else tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what this process keeps."""
        return tuple(self.local(self.param).shape)  # type: ignore[union-attr]


@dataclass(frozen=True, slots=True)
class Kind:
    """What an optimizer computes. `adam` is False where it is none of those known here, named by `other` then."""

    adam: bool
    l2: bool
    amsgrad: bool
    maximize: bool
    way: str
    name: str
    numerics: Numerics = "precise"

    @property
    def variant(self) -> Variant:
        """The form in which the kernels here come nearest to it."""
        return Variant(optimizer="adam-l2" if self.l2 else "adamw", numerics=self.numerics)

    @property
    def origin(self) -> str:
        """What made the run."""
        return f"PyTorch {torch.__version__} {self.name} ({self.way})"


def unwrapped(optimizer: Optimizer) -> Optimizer:
    """The optimizer of PyTorch inside what others put around it (Accelerate); UsageError where there is none."""
    found = optimizer
    while isinstance(inner := getattr(found, "optimizer", None), torch.optim.Optimizer):
        found = inner
    if not isinstance(found, torch.optim.Optimizer):
        raise UsageError(
            f"record() was given a {type(optimizer).__name__}, which is no torch.optim.Optimizer: hand it the "
            "optimizer whose step() the script calls."
        )
    return found


def kind_of(optimizer: Optimizer) -> Kind:
    """What it computes, from its class and the options of its groups."""
    groups = optimizer.param_groups
    # A subclass with a step of its own may compute anything.
    known = isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW)) and type(optimizer).step in (
        torch.optim.Adam.step,
        torch.optim.AdamW.step,
    )

    def decoupled(group: Mapping[str, Any]) -> bool:
        return isinstance(optimizer, torch.optim.AdamW) or bool(group.get("decoupled_weight_decay"))

    if any(group.get("fused") for group in groups):
        way = "fused"
    elif any(group.get("foreach") for group in groups) or _foreach_by_default(groups):
        way = "foreach"
    else:
        way = "for-loop"
    if any(group.get("capturable") for group in groups):
        way += ", capturable"
    return Kind(
        adam=known,
        l2=known and not any(decoupled(group) for group in groups),
        amsgrad=known and any(group.get("amsgrad") for group in groups),
        maximize=any(group.get("maximize") for group in groups),
        way=way,
        name=_name(type(optimizer)),
        # PyTorch's fused kernel on CUDA forms 1-β and 1-βᵗ in float32, all other ways in float64 on the host.
        numerics="published" if way.startswith("fused") and _on_cuda(groups) else "precise",
    )


def _name(kind: type) -> str:
    """Of a class of another package that is called as one of PyTorch's, whose it is as well."""
    package = kind.__module__.partition(".")[0]
    if package == "torch" or not hasattr(torch.optim, kind.__name__):
        return kind.__name__
    return f"{kind.__name__} of {'the script' if package == '__main__' else package}"


def _on_cuda(groups: Sequence[Mapping[str, Any]]) -> bool:
    return any(param.device.type == "cuda" for group in groups for param in group["params"])


def _foreach_by_default(groups: Sequence[Mapping[str, Any]]) -> bool:
    """As PyTorch chooses where nothing is asked for: off the CPU alone."""
    params = [param for group in groups for param in group["params"]]
    asked = any(group.get("foreach") is False or group.get("fused") is False for group in groups)
    return bool(params) and not asked and all(param.device.type not in ("cpu", "mps") for param in params)


def unreplayable(kind: Kind, dtypes: Sequence[str]) -> str:
    """A sentence on what keeps the kernels here from computing the same; "" where nothing does."""
    if not kind.adam:
        return (
            f"The run used {kind.name}, which the kernels here do not compute: its statistics are recorded, its steps "
            "are not run again."
        )
    reasons = []
    if kind.amsgrad:
        reasons.append("amsgrad divides by the largest v there has been, which is not kept here")
    others = sorted({_LONG[each] for each in dtypes if each in _LONG})
    if others:
        reasons.append(
            f"PyTorch kept and rounded params in {' and '.join(others)}, the kernels here in float32"
        )
    if not reasons:
        return ""
    return f"The steps of this run are not run again bit for bit: {'; '.join(reasons)}."


def name_params(optimizer: Optimizer, model: Any, taken: Mapping[int, Known] | None = None) -> list[Known]:
    """The params of the optimizer, group by group, with the names they have in the model.

    Of one that has several names the first counts. Without a model, the names that the optimizer was given, else the
    number of the group and the place in it. `taken` are those known before, by the id of their tensor.
    """
    taken = taken or {}
    names = dict(_named(model))
    used = {known.name for known in taken.values()}
    found: list[Known] = []
    for number, group in enumerate(optimizer.param_groups):
        given = group.get("param_names") or ()
        for place, param in enumerate(group["params"]):
            before = taken.get(id(param))
            if before is not None:
                found.append(before)
                continue
            name = names.get(id(param))
            if name is None and place < len(given):
                name = given[place]
            if name is None:
                name = f"group{number}.{place}"
            unique, count = name, 2
            while unique in used:
                unique, count = f"{name}~{count}", count + 1
            used.add(unique)
            found.append(_known(unique, param, number))
    if not found:
        raise UsageError("The optimizer has no params, so there is nothing to record.")
    return found


def _known(name: str, param: Tensor, group: int) -> Known:
    if param.is_complex():
        raise UsageError(f"{name} is complex, which is not recorded: leave it out of the optimizer.")
    if not hasattr(param, "to_local"):
        return Known(name, param, group, False, None)
    return Known(name, param, group, True, _shard(param))


def _shard(param: Tensor) -> Shard | None:
    """The part of a DTensor that this process keeps; None where it keeps all of it."""
    if all(placement.is_replicate() for placement in param.placements):
        return None
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    _, offset = compute_local_shape_and_global_offset(param.shape, param.device_mesh, param.placements)
    return Shard(tuple(param.shape), tuple(int(at) for at in offset))


def _named(model: Any) -> Iterator[tuple[int, str]]:
    """Names by the id of the tensor, the last first so that the first counts in a dict."""
    if model is None:
        return
    if not hasattr(model, "named_parameters"):
        raise UsageError(
            f"model is a {type(model).__name__}, which has no named_parameters(): give an nn.Module."
        )
    listed = [(id(param), clean(name)) for name, param in model.named_parameters(remove_duplicate=False)]
    yield from reversed(listed)


_WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


def clean(name: str) -> str:
    """A name without what torch.compile and wrappers of modules put into it."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def inner_model(model: Any) -> Any:
    """The model inside DistributedDataParallel, DataParallel and torch.compile."""
    while True:
        if isinstance(model, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), torch.nn.Module):
            model = model._orig_mod
        else:
            return model


def notes_of(known: Sequence[Known], model: Any) -> list[str]:
    """What is worth saying of the params: names of one tensor, params of the model that are in no group."""
    if model is None:
        return []
    mine = {id(each.param): each.name for each in known}
    notes: list[str] = []
    outside: list[str] = []
    frozen = 0
    for name, param in model.named_parameters(remove_duplicate=False):
        name = clean(name)
        kept = mine.get(id(param))
        if kept is None:
            outside.append(name)
            frozen += not param.requires_grad
        elif kept != name:
            notes.append(f"{name} is the same tensor as {kept}, under whose name it is recorded")
    if outside:
        more = f" and {len(outside) - NAMED:,} more" if len(outside) > NAMED else ""
        verb, those = ("is", "") if len(outside) == 1 else ("are", f"{frozen:,} of them ")
        some = f", {those}frozen" if frozen else ""
        notes.append(
            f"{len(outside):,} {'param' if len(outside) == 1 else 'params'} of the model {verb} in no group of the "
            f"optimizer{some}, and not recorded: "
            f"{', '.join(outside[:NAMED])}{more}"
        )
    names = {clean(name) for name, _ in model.named_parameters(remove_duplicate=False)}
    strangers = [each.name for each in known if each.name not in names]
    if strangers:
        more = f" and {len(strangers) - NAMED:,} more" if len(strangers) > NAMED else ""
        notes.append(
            f"{len(strangers):,} params of the optimizer are not in the model: {', '.join(strangers[:NAMED])}{more}"
        )
    return notes


def as_params(known: Sequence[Known], groups: Sequence[Mapping[str, Any]]) -> tuple[Param, ...]:
    """As a session names them: each with the shape that this process keeps, decayed where its group decays."""
    return tuple(
        Param(each.name, each.shape, bool(groups[each.group].get("weight_decay", 0)), each.group)
        for each in known
    )


def dtypes_of(known: Sequence[Known]) -> tuple[str, ...]:
    """The type of each param; () where all are float32."""
    found = tuple(DTYPES.get(each.param.dtype, str(each.param.dtype)) for each in known)
    return () if set(found) <= {"f32"} else found
