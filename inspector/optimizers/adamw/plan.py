"""The plan of an Adam step: reduce_norm_sq → finalize_grad_stats → the update over the blocks."""

from __future__ import annotations

from collections.abc import Mapping

from inspector.codecs import CODEC_NUMBER
from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.hyper import Hyper, Numerics, adam_hp_uniform, bias_uniform, max_grad_norm_uniform
from inspector.layout import Layout
from inspector.optimizers.planning.update import UpdatePlan, UpdateRange
from inspector.param_hyper import Classes, alone
from inspector.plan import Limits, Plan, Variant


def uniforms(hyper: Hyper, step: int, numerics: Numerics) -> Mapping[str, F32Array]:
    """The values that change from step to step, float32, by the keys used in the plan.

    Those of classes of params end in the number of the class; an idle one has none, since nothing of it runs.
    """
    if hyper.per_param is not None:
        values = {"max_grad_norm": max_grad_norm_uniform(hyper)}
        for i, each in enumerate(hyper.per_param.classes):
            # What no param is of may well be set for a time before the run.
            if not each.idle and (each.t(step) >= 1 or i in hyper.per_param.of):
                own = alone(hyper, each)
                values[f"hp:{i}"] = adam_hp_uniform(own, each.t(step), decays=True)
                values[f"bias:{i}"] = bias_uniform(own, each.t(step), numerics)
        return values
    return {
        "max_grad_norm": max_grad_norm_uniform(hyper),
        "hp:wd": adam_hp_uniform(hyper, step, decays=True),
        "hp:no_wd": adam_hp_uniform(hyper, step, decays=False),
        "bias": bias_uniform(hyper, step, numerics),
    }


def plan_adamw(layout: Layout, limits: Limits, variant: Variant, classes: Classes | None = None) -> Plan:
    """Lay the dispatches out; see `plan_step`."""
    return AdamWPlan(layout, limits, variant, classes).build()


def plan_adam_l2(layout: Layout, limits: Limits, variant: Variant, classes: Classes | None = None) -> Plan:
    """The same with weight decay in the gradient."""
    return AdamL2Plan(layout, limits, variant, classes).build()


class AdamWPlan(UpdatePlan):
    """Adam's kernels: float32, with a half-precision mirror, with 8-bit state, and as published."""

    l2 = False
    hp_type = "array<vec4<f32>, 2>"

    def check_variant(self) -> None:
        variant = self.variant
        if not self.published:
            return
        if variant.reduce != "atomic":
            raise UsageError("The published grid goes with --reduce atomic.")
        if variant.kernel != "f32" or not variant.fused:
            raise UsageError("The published grid is there for the fused float32 kernel only.")
        if variant.dispatch == "single" or variant.optimizer != "adamw":
            raise UsageError("The published grid is there for AdamW with dispatches by block or by tensor.")

    def kernel(self, range_: UpdateRange) -> tuple[str, str]:
        mirrored = self.variant.kernel == "f16" and self.variant.fused
        name = (
            "adamw_8bit_update"
            if range_.state == "8bit"
            else "adamw_update_f16"
            if mirrored
            else "adamw_update"
        )
        return (f"published/{name}" if self.published else name), name

    def constants(self, range_: UpdateRange) -> dict[str, float]:
        constants = super().constants(range_) | {"L2": float(self.l2)}
        if self.published:
            del constants["L2"]
        if range_.state == "8bit":
            constants["CODEC"] = float(CODEC_NUMBER[self.variant.codec])
        return constants


class AdamL2Plan(AdamWPlan):
    """The same kernels with weight decay in the gradient."""

    l2 = True
