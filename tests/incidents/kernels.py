"""Bugs in a user's own WGSL, each a slip in kernels that are otherwise right, and a plan that leaves a param out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from own_wgsl import FINALIZE, NORM, UPDATE, UPDATE_F16

from incidents.incident import ANY, Act, Incident, Wanted
from incidents.sources import NO_CLIP, PARAMS, Drawn, from_step, in_step, put, times
from inspector.codecs import Codec
from inspector.gpu.device import Gpu
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.plan import Plan, Variant
from inspector.runtime.engine import Engine
from inspector.shader_text import SHARED, shader_source

KERNEL = "adamw_update"
UPDATE_8BIT = "\n".join(shader_source(name) for name in (*SHARED["adamw_8bit_update"], "adamw_8bit_update"))
BIG = (Param("a.weight", (64, 128)),)
LIMIT = Hyper(max_grad_norm=1.0)
MATRICES = tuple(p.name for p in PARAMS if len(p.shape) == 2)
GAINS = tuple(p.name for p in PARAMS if len(p.shape) < 2)
NOT_ZEROED = frozenset({"gradients-not-zeroed"})
DIFFERS = frozenset({"own-kernel-differs"})


def bug(*slips: tuple[str, str], text: str = UPDATE) -> dict[str, str]:
    """A kernel in which each first text was written as the second."""
    for right, wrong in slips:
        assert text.count(right) == 1, right
        text = text.replace(right, wrong)
    return {"mine": text}


def slip(
    name: str, fault: str, why: str, *slips: tuple[str, str], line: str = "", step: int = 1,
    params: tuple[str, ...] = (), source: Callable[[], Drawn] = lambda: Drawn(hyper=NO_CLIP),
    follows: frozenset[str] = frozenset(), index: int | None = None,
) -> Incident:  # fmt: skip
    """A slip in adamw_update that shows in the first step in which it changes a number."""
    return Incident(
        name, fault, step,
        Wanted("own-kernel-differs", step, why, params or ANY, ANY if index is None else index, KERNEL,
               {"line": line} if line else {}),
        source, shaders=bug(*slips), follows=follows,
    )  # fmt: skip


def slip_8bit(
    name: str,
    fault: str,
    why: str,
    *slips: tuple[str, str],
    line: str = "",
    codec: Codec = "linear",
    step: int = 1,
) -> Incident:
    """A slip in a kernel over an 8-bit state, which is as the built-in one otherwise."""
    return Incident(
        name, fault, step,
        Wanted("own-kernel-differs", step, why, ("a.weight",), ANY, "adamw_8bit_update wd",
               {"line": line} if line else {}),
        lambda: Drawn(params=BIG, hyper=NO_CLIP), Variant(kernel="8bit", codec=codec), bug(*slips, text=UPDATE_8BIT),
    )  # fmt: skip


def left_out(missing: Callable[[str, npt.NDArray[np.int64]], npt.NDArray[np.bool_]]) -> tuple[str, int]:
    """Of elements that no thread works on in step 1: the param of which they are the largest share, and the largest.

    m should become a tenth of the gradient and stays 0. `missing` is given a param and its flat indices.
    """
    g = Drawn().gradients(1, dict).values
    worst, share, at = "", 0.0, 0
    for p in PARAMS:
        values = np.float64(g[p.name])
        lost = np.where(missing(p.name, np.arange(p.numel)), np.abs(values), 0.0)
        ratio = float(np.linalg.norm(lost) / np.linalg.norm(values))
        if ratio > share:
            worst, share, at = p.name, ratio, int(np.argmax(lost))
    return worst, at


ODD = left_out(lambda name, i: i % 2 == 1)
LAST = left_out(
    lambda name, i: i == 511 if name == "h.1.mlp.down.weight" else (i == 15) & (name == "norm.bias")
)


def with_dispatches(change: Callable[[Plan], list[int]]) -> Act:
    """The plan runs these of its dispatches, by index: what an engine with a slip in its own plan would run."""

    def act(engine: Engine, gpu: Gpu) -> None:
        stepper = engine.stepper
        assert isinstance(stepper, GpuStepper)
        plan = stepper.plan
        chosen = [plan.dispatches[i] for i in change(plan)]
        changed = replace(plan, dispatches=tuple(replace(d, index=i) for i, d in enumerate(chosen)))
        runner = stepper._runner
        runner.plan, runner.prepared = changed, runner.prepare(changed)
        stepper._cursor = replace(stepper.cursor, dispatch=len(chosen), count=len(chosen))

    return act


def with_alignment(nbytes: int) -> Act:
    """The plan is held against a device that binds at multiples of `nbytes` only."""

    def act(engine: Engine, gpu: Gpu) -> None:
        stepper = engine.stepper
        assert isinstance(stepper, GpuStepper)
        limits = replace(stepper.plan.limits, min_storage_buffer_offset_alignment=nbytes)
        stepper._runner.plan = replace(stepper.plan, limits=limits)

    return act


def without(label: str) -> Callable[[Plan], list[int]]:
    return lambda plan: [d.index for d in plan.dispatches if d.label != label]


def twice(label: str) -> Callable[[Plan], list[int]]:
    return lambda plan: [i for d in plan.dispatches for i in [d.index] * (2 if d.label == label else 1)]


INCIDENTS = (
    slip("m not corrected for bias", "m̂ = m", "m̂ is 10 m in step 1",
         ("m1 / max(1.0 - bias.x, 1e-12)", "m1"), line="m̂"),
    slip("v not corrected for bias", "v̂ = v", "v̂ is 1,000 v in step 1",
         ("v1 / max(1.0 - bias.y, 1e-12)", "v1"), line="v̂"),
    slip("neither corrected", "m̂ = m and v̂ = v", "the update is 3.2 times as large in step 1",
         ("m1 / max(1.0 - bias.x, 1e-12)", "m1"), ("v1 / max(1.0 - bias.y, 1e-12)", "v1"), line="m̂ and v̂"),
    slip("powers of β exchanged", "m is corrected by β₂ᵗ and v by β₁ᵗ", "the update is 1,000 times as large in step 1",
         ("m1 / max(1.0 - bias.x", "m1 / max(1.0 - bias.y"), ("v1 / max(1.0 - bias.y", "v1 / max(1.0 - bias.x")),
    slip("β₂ in the place of β₁", "m takes 1 - β₂ of the gradient", "m is a hundredth in step 1",
         ("hp.y * m[i] + (1.0 - hp.y) * grad", "hp.z * m[i] + (1.0 - hp.z) * grad"), line="m"),
    slip("β₁ in the place of β₂", "v takes 1 - β₁ of g²", "v is 100 times as large in step 1",
         ("hp.z * v[i] + (1.0 - hp.z) * (grad * grad)", "hp.y * v[i] + (1.0 - hp.y) * (grad * grad)"), line="v"),
    slip("gradient not squared", "v is a mean of gradients", "v is 1,000 times as large in step 1",
         ("(grad * grad)", "grad"), line="v"),
    slip("decay on the block without", "λ = 0.01 for all params, written into the kernel",
         "gains of 1 lose 1e-5 in step 1", ("hp.w * w[i]", "0.01 * w[i]"), line="decay", params=GAINS),
    slip("decay left out", "no weight decay", "matrices keep λ·lr·w in step 1", ("hp.w * w[i]", "0.0"),
         line="decay", params=MATRICES, source=lambda: Drawn(hyper=replace(NO_CLIP, weight_decay=0.1))),
    slip("decay in the gradient", "Adam with L2 in the place of AdamW", "m is off by 0.1·λ·w in step 1",
         ("select(0.0, g[i], finite(g[i]))", "(select(0.0, g[i], finite(g[i])) + hp.w * w[i])"), line="m",
         params=MATRICES),
    slip("sign of the update", "w + Δw", "in step 1", ("w[i] = w[i] - update", "w[i] = w[i] + update"), line="update"),
    slip("learning rate left out", "the update is not multiplied by lr", "1,000 times as large in step 1",
         ("hp.x * (m_hat", "(m_hat"), line="update"),
    slip("ε inside the root", "√(v̂ + ε) in the place of √v̂ + ε",
         "v̂ is 1e-6 and ε 1e-8: half a percent in step 1, more where gradients are small",
         ("(sqrt(v_hat) + bias.z)", "sqrt(v_hat + bias.z)"), line="denominator"),
    slip("root left out", "m̂/(v̂ + ε)", "1,000 times as large in step 1", ("sqrt(v_hat)", "v_hat")),
    slip("clip scale not applied", "the gradient is not multiplied by the clip scale",
         "step 5 is the first with a norm above the limit", ("grad_stats[1] * select", "select"), line="g'", step=5,
         source=lambda: Drawn(hyper=LIMIT, edit=from_step(5, times(40.0)))),
    slip("gradient norm in the place of the scale", "grad_stats[0] instead of grad_stats[1]",
         "the norm is 0.05, the scale 1, in step 1", ("grad_stats[1]", "grad_stats[0]"), line="m"),
    slip("m and v written crosswise", "m is written to v and v to m", "in step 1",
         ("m[i] = m1", "m[i] = v1"), ("v[i] = v1", "v[i] = m1"), line="m"),
    slip("test for NaN by comparison", "g = g in the place of a test of the exponent bits: +Inf passes",
         "step 5 is the first with an infinite gradient", ("finite(g[i])", "g[i] == g[i]"), line="m", step=5,
         params=("h.0.mlp.up.weight",), index=200, follows=frozenset({"nonfinite-gradient"}),
         source=lambda: Drawn(hyper=NO_CLIP, edit=in_step(5, put("h.0.mlp.up.weight", 200, np.inf)))),
    slip("stride of 2", "every thread takes the element at twice its index: odd ones are never written",
         "m of odd elements stays 0 in step 1",
         ("gid.y * groups.x * WG + gid.x", "2u * (gid.y * groups.x * WG + gid.x)"), line="m", params=(ODD[0],),
         index=ODD[1], follows=NOT_ZEROED),
    slip("one element too few", "i >= size - 1: the last element of each dispatch is never written",
         "m of the last element stays 0 in step 1", ("i >= size", "i >= size - 1u"), line="m", params=(LAST[0],),
         index=LAST[1], follows=NOT_ZEROED),
    slip("grid of one workgroup", "only the first 256 elements of each dispatch are written",
         "m of all params behind stays 0 in step 1", ("i >= size", "i >= size || i >= 256u"), line="m",
         params=tuple(name for name in MATRICES if name != "embed.weight"), follows=NOT_ZEROED),
    slip("neighbour's gradient", "the gradient of element i + 1", "in step 1",
         ("select(0.0, g[i], finite(g[i]))", "select(0.0, g[i + 1u], finite(g[i + 1u]))"), line="m",
         follows=frozenset({"padding-not-zero"})),
    slip_8bit("8 bits: m not corrected for bias", "m̂ = m", "the update is a tenth in step 1",
              ("to.m_hat = to.m / max(1.0 - bias.x, 1e-12)", "to.m_hat = to.m"), line="m̂"),
    slip_8bit("8 bits: scale of v for m", "codes of m are made with the scale of v", "codes are at their end in step 1",
              ("encode_m(m1, new_m_scale)", "encode_m(m1, new_v_scale)"), line="m"),
    slip_8bit("8 bits: sign of the update", "w + Δw", "in step 1",
              ("select(w0, to.w, mine)", "select(w0, w0 + to.change, mine)"), line="update"),
    slip_8bit("8 bits: scale of one thread", "the scale of a block is that of its first four elements",
              "codes of the others are cut off in step 1",
              ("block_maxima(local, vec2(largest4(m1), largest4(v1)))", "vec2(largest4(m1), largest4(v1))"), line="m",
              codec="dynamic"),
    slip_8bit("8 bits: ε not raised", "linear codes without ε of 1e-6 at least",
              "ε 1e-6 takes a thousandth off where g is 0.001 in step 1",
              ("max(bias.z, LINEAR_EPS_FLOOR)", "bias.z")),
    slip_8bit("8 bits: update not limited", "linear codes without [-1, 1] for m̂/√v̂", "v that rounded to 0 in step 2",
              ("clamp(to.ratio, vec4(-1.0), vec4(1.0))", "to.ratio"), line="update", step=2),
    Incident(
        "gradients not zeroed", "g is left as it is", 1,
        Wanted("gradients-not-zeroed", 1, "exact", dispatch="adamw_update no-wd", evidence={"elements": 2992}),
        Drawn, shaders=bug(("g[i] = 0.0;", "")),
    ),
    Incident(
        "written beyond the end", "m of element i goes to i + 1: the gaps after params fill", 1,
        Wanted("padding-not-zero", 1, "exact", dispatch="adamw_update no-wd"),
        Drawn, shaders=bug(("m[i] = m1", "m[i + 1u] = m1")), follows=DIFFERS,
    ),
    Incident(
        "clip scale not applied, between two comparisons", "clipped from step 7 on, which is not compared", 7,
        Wanted("unexplained-moments", 8, "m and v after step 7 hold gradients that were to be clipped to 0.45", ANY,
               None, KERNEL),
        lambda: Drawn(hyper=LIMIT, edit=from_step(7, times(40.0))),
        shaders=bug(("grad_stats[1] * select", "select")),
    ),
    Incident(
        "norm of half the gradients", "reduce_norm_sq takes half of n", 1,
        Wanted("norm-mismatch", 1, "about 1/√2 of the norm, rounding is below 1e-3", dispatch="reduce_norm_sq"),
        Drawn, shaders=bug(("i < count &&", "i < count / 2u &&"), text=NORM),
    ),
    Incident(
        "norm without its last workgroup's tree", "the tree reduction stops at 64: half of each group is lost", 1,
        Wanted("norm-mismatch", 1, "shares of 64 to 127 are left out", dispatch="reduce_norm_sq"),
        Drawn, shaders=bug(("var half = 128u;", "var half = 32u;"), text=NORM),
    ),
    Incident(
        "norm lets infinities in", "reduce_norm_sq squares what is not finite", 5,
        Wanted("norm-overflow", 5, "+Inf squared is infinite in the first step that has one",
               dispatch="reduce_norm_sq"),
        lambda: Drawn(edit=in_step(5, put("embed.weight", 17, np.inf))),
        shaders=bug(("&& usable(grads[i])", ""), text=NORM),
        follows=DIFFERS | {"nonfinite-gradient"},
    ),
    Incident(
        "root of the norm left out", "finalize_grad_stats writes normSq as gradNorm", 1,
        Wanted("norm-mismatch", 1, "0.003 in the place of 0.054, which is its root", dispatch="finalize_grad_stats"),
        Drawn, shaders=bug(("sqrt(norm_sq[0])", "norm_sq[0]"), text=FINALIZE),
    ),
    Incident(
        "clip scale above 1", "finalize_grad_stats without min(1, …)", 1,
        Wanted("clip-scale-mismatch", 1, "1/0.054 = 18 in the place of 1", dispatch="finalize_grad_stats"),
        Drawn, shaders=bug(("min(1.0, limit / max(stats[0], 1e-6))", "limit / max(stats[0], 1e-6)"), text=FINALIZE),
        follows=DIFFERS,
    ),
    Incident(
        "clip scale always 1", "finalize_grad_stats does not clip", 3,
        Wanted("clip-scale-mismatch", 3, "step 3 is the first with a norm above the limit",
               dispatch="finalize_grad_stats"),
        lambda: Drawn(hyper=LIMIT, edit=from_step(3, times(40.0))),
        shaders=bug(("min(1.0, limit / max(stats[0], 1e-6))", "1.0"), text=FINALIZE), follows=DIFFERS,
    ),
    Incident(
        "a param without a dispatch", "the plan leaves out the update of h.1.mlp.up.weight", 1,
        Wanted("unwritten-elements", 1, "exact", ("h.1.mlp.up.weight",), 0, "", {"elements": 512}),
        Drawn, Variant(dispatch="per-tensor"),
        before={1: with_dispatches(without("adamw_update h.1.mlp.up.weight"))},
    ),
    Incident(
        "a param updated twice", "the plan has the update of h.0.attn.weight twice", 1,
        Wanted("overlapping-bindings", 1, "exact", ("h.0.attn.weight",), 0, "adamw_update h.0.attn.weight"),
        Drawn, Variant(dispatch="per-tensor"),
        before={1: with_dispatches(twice("adamw_update h.0.attn.weight"))},
    ),
    Incident(
        "params laid out for another device", "bindings begin at multiples of 256 bytes, the device asks for 4,096", 1,
        Wanted("misaligned-binding", 1, "exact: the second param begins at byte 1,536",
               dispatch="adamw_update h.0.attn", evidence={"offset": 1536, "align": 4096, "slot": 0}),
        Drawn, Variant(dispatch="per-tensor"), before={1: with_alignment(4096)},
    ),
    Incident(
        "half-precision mirror left behind", "adamw_update_f16 writes the weights from before the update to w_f16", 1,
        Wanted("own-kernel-differs", 1, "the mirror is lr = 0.001 off in step 1: 32 spacings at a weight of 0.05", ANY,
               ANY, "adamw_update_f16", {"lane": "w_f16"}),
        lambda: Drawn(hyper=NO_CLIP), Variant(kernel="f16"),
        bug(("if (finite(update))", "w_f16[i] = f16(w[i]);\n    if (finite(update))"),
            ("    w_f16[i] = f16(w[i]);\n}", "}"), text=UPDATE_F16),
    ),
)  # fmt: skip
