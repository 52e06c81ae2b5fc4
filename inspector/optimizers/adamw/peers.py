"""The same AdamW step as others compute it: in the order and type of each one's roundings.

Every peer is the published update (decoupled decay, or decay in the gradient with `l2`); what differs are float32
roundings alone. Products of two float32 are exact in float64, so a fused multiply-add is one in float64 rounded once
more, which is off by a double rounding in one of 2**29 elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from inspector.floats import F32Array
from inspector.hyper import Hyper
from inspector.optimizers.adamw.oracle import update
from inspector.step_ulp import Dtype, rounded

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """w, m and v of one param at one moment: flat float32 of one length."""

    w: F32Array
    m: F32Array
    v: F32Array

    def take(self, at: Any) -> Lanes:
        """The elements `at`."""
        return Lanes(self.w[at], self.m[at], self.v[at])


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """What a step is given of one param.

    `hyper` holds the settings of the param, its `weight_decay` counting where `decays`; `t` counts from 1 and is the
    param's own. `scale` is the clip scale that the gradient `g` still has to be multiplied by. `dtype` is what the
    param's tensors are kept in, all of them given as float32. `lrs` are rates of other steps by what they are ("the
    step before"), `decays_of` other λ in use, `counts` other step counts in use by what they are; `max_v` the running
    maximum of v before the step where there is one.
    """

    before: Lanes
    g: F32Array
    hyper: Hyper
    t: int
    decays: bool = True
    l2: bool = False
    scale: float = 1.0
    dtype: Dtype = "f32"
    lrs: Mapping[str, float] = field(default_factory=dict)
    decays_of: tuple[float, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    max_v: F32Array | None = None
    narrow: bool = False
    """1-β and 1-βᵗ are formed in float32, of β in float32, as in PyTorch's fused kernel on CUDA."""

    def narrowed(self) -> Given:
        """The same with β in float32, and what is formed of it."""
        beta1, beta2 = (float(np.float32(beta)) for beta in (self.hyper.beta1, self.hyper.beta2))
        return replace(self, hyper=replace(self.hyper, beta1=beta1, beta2=beta2), narrow=True)

    def take(self, at: Any) -> Given:
        """The same step of the elements `at` alone."""
        max_v = None if self.max_v is None else self.max_v[at]
        return replace(self, before=self.before.take(at), g=self.g[at], max_v=max_v)

    @property
    def decay(self) -> float:
        """λ of this param."""
        return self.hyper.weight_decay if self.decays else 0.0

    @property
    def corrections(self) -> tuple[float, float]:
        """1-β₁ᵗ and 1-β₂ᵗ in float64."""
        with np.errstate(all="ignore"):
            return tuple(float(1 - np.float64(b) ** self.t) for b in (self.hyper.beta1, self.hyper.beta2))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Peer:
    """Whose roundings these are. `exact` says that the whole step can be had bit for bit, but for what is in `but`."""

    key: str
    name: str
    compute: Callable[[Given], Lanes]
    but: str = ""

    def step(self, given: Given) -> Lanes:
        """w, m and v after the step."""
        with np.errstate(all="ignore"):
            return self.compute(given)


def fma(a: Array | np.float32, b: Array, c: Array | np.float32) -> F32Array:
    """a · b + c rounded once, of float32."""
    return (np.asarray(a, np.float64) * b + c).astype(np.float32)


def torch_loop(given: Given) -> Lanes:
    """PyTorch 2.13, `torch.optim.adam._single_tensor_adam` and `_multi_tensor_adam` on a CPU, which compute the same.

    Each call rounds to the param's type: mul_(1-lr·λ), lerp_, mul_(β₂), addcmul_, sqrt, /√(1-β₂ᵗ), +ε, addcdiv_.
    lerp_ and addcmul_ are fused multiply-adds (ATen/native/cpu/LerpKernel.cpp, PointwiseOpsKernel.cpp), the square root
    is that of a vector library, which is off by one ULP in a fifth of all elements.
    """
    h, keep = given.hyper, _keep(given.dtype)
    lr, decay = h.lr, given.decay
    w, m, v = given.before.w, given.before.m, given.before.v
    g = keep(_clipped(given))
    first, second = given.corrections
    if decay and given.l2:
        g = keep(fma(np.float32(decay), w, g))
    elif decay:
        w = keep(w * np.float32(1 - lr * decay))
    m = keep(_lerp(m, g, h.beta1))
    v = keep(fma(np.float32(1 - h.beta2) * g, g, keep(v * np.float32(h.beta2))))
    denominator = keep(keep(keep(np.sqrt(v)) / np.float32(second**0.5)) + np.float32(h.eps))
    w = keep(w + np.float32(-(lr / first)) * m / denominator)
    return Lanes(w, m, v)


def torch_fused_cpu(given: Given) -> Lanes:
    """PyTorch 2.13, AdamW(fused=True) on a CPU: ATen/native/cpu/FusedAdamKernel.cpp, in float32, one rounding to the
    param's type at the end. The elements behind the last whole vector of a thread are rounded otherwise."""
    h, keep = given.hyper, _keep(given.dtype)
    w: Array = given.before.w
    m, v = given.before.m, given.before.v
    g = _clipped(given)
    first, second = given.corrections
    if given.decay and given.l2:
        g = fma(np.float32(given.decay), w, g)
    elif given.decay:
        w = w * np.float32(1 - h.lr * given.decay)
    m = _lerp(m, g, h.beta1)
    v = fma(np.float32(1 - h.beta2) * g, g, v * np.float32(h.beta2))
    denominator = np.sqrt(v) / np.float32(second**0.5) + np.float32(h.eps)
    w = w + np.float32(-(h.lr / first)) * m / denominator
    return Lanes(keep(w), keep(m), keep(v))


def torch_foreach_cuda(given: Given) -> Lanes:
    """PyTorch 2.11, AdamW(foreach=True) on CUDA: ATen/native/cuda/ForeachPointwiseOp.cu and ForeachTernaryOp.cu.

    a + c·(b·d) and w + s·(m/d) as fused multiply-adds, division by a scalar as a division; rounded after each call.
    """
    return _on_cuda(given, by_reciprocal=False)


def _on_cuda(given: Given, *, by_reciprocal: bool) -> Lanes:
    h, keep = given.hyper, _keep(given.dtype)
    w, m, v = given.before.w, given.before.m, given.before.v
    g = keep(_clipped(given))
    first, second = given.corrections
    if given.decay and given.l2:
        g = keep(fma(np.float32(given.decay), w, g))
    elif given.decay:
        w = keep(w * np.float32(1 - h.lr * given.decay))
    m = keep(_lerp(m, g, h.beta1))
    v = keep(fma(np.float32(1 - h.beta2), g * g, keep(v * np.float32(h.beta2))))
    root = keep(np.sqrt(v))
    corrected = root * np.float32(second**-0.5) if by_reciprocal else root / np.float32(second**0.5)
    denominator = keep(keep(corrected) + np.float32(h.eps))
    w = keep(fma(np.float32(-(h.lr / first)), m / denominator, w))
    return Lanes(w, m, v)


def torch_loop_cuda(given: Given) -> Lanes:
    """PyTorch 2.11, AdamW(foreach=False) on CUDA: as foreach, with √v times 1/√(1-β₂ᵗ) for a division by a scalar."""
    return _on_cuda(given, by_reciprocal=True)


def torch_fused_cuda(given: Given) -> Lanes:
    """PyTorch 2.11, AdamW(fused=True) on CUDA: ATen/native/cuda/fused_adam_utils.cuh.

    All of it in float32, 1-β of a β in float32 and 1-βᵗ as well, as in the published kernel: 1-β₂ of 0.999 is 1.3e-5
    too small. m and v are fused multiply-adds of β with what is added.
    """
    h, keep = given.hyper, _keep(given.dtype)
    one, lr, beta1, beta2 = np.float32(1), np.float32(h.lr), np.float32(h.beta1), np.float32(h.beta2)
    decay, eps = np.float32(given.decay), np.float32(h.eps)
    w: Array = given.before.w
    m, v = given.before.m, given.before.v
    g = _clipped(given)
    if given.decay and given.l2:
        g = fma(decay, w, g)
    elif given.decay:
        w = w - lr * decay * w
    m = fma(beta1, m, (one - beta1) * g)
    v = fma(beta2, v, (one - beta2) * (g * g))
    first, second = (one - np.float32(np.float64(beta) ** given.t) for beta in (beta1, beta2))
    w = w - lr / first * m / (np.sqrt(v) / np.sqrt(second) + eps)
    return Lanes(keep(w), keep(m), keep(v))


def kernel_precise(given: Given) -> Lanes:
    """The built-in kernel with precise numerics: `oracle.update` in float32, the roundings of `torch_fused_cpu`."""
    return _here(given, "precise")


def kernel_published(given: Given) -> Lanes:
    """The published kernel: 1-β and 1-βᵗ in float32, of β rounded to float32."""
    return _here(given, "published")


PEERS: tuple[Peer, ...] = (
    Peer(
        "torch-loop",
        "PyTorch's foreach or for-loop on a CPU",
        torch_loop,
        "PyTorch's square root, which is off by one ULP now and then",
    ),
    Peer("torch-fused", "PyTorch's fused kernel on a CPU", torch_fused_cpu),
    Peer("torch-foreach-cuda", "PyTorch's foreach on CUDA", torch_foreach_cuda),
    Peer("torch-loop-cuda", "PyTorch's for-loop on CUDA", torch_loop_cuda),
    Peer("torch-fused-cuda", "PyTorch's fused kernel on CUDA", torch_fused_cuda),
    Peer("precise", "the kernel here with precise numerics", kernel_precise),
    Peer("published", "the published kernel", kernel_published),
)


def _here(given: Given, numerics: Any) -> Lanes:
    before, keep = given.before, _keep(given.dtype)
    done = update(
        before.w, given.g, before.m, before.v,
        scale=given.scale, hyper=given.hyper, step=given.t, decays=given.decays, numerics=numerics, dtype=np.float32,
        l2=given.l2,
    )  # fmt: skip
    return Lanes(*(keep(np.asarray(x, np.float32)) for x in (done.w, done.m, done.v)))


def _clipped(given: Given) -> F32Array:
    return given.g if given.scale == 1 else given.g * np.float32(given.scale)


def _lerp(m: F32Array, g: F32Array, beta1: float) -> F32Array:
    weight = np.float32(1 - beta1)
    if weight < 0.5:
        return fma(weight, g - m, m)
    return fma(weight - np.float32(1), g - m, g)


def _keep(dtype: Dtype) -> Callable[[Array], F32Array]:
    if dtype == "f32":
        return lambda values: np.asarray(values, np.float32)
    return lambda values: rounded(values, dtype)
