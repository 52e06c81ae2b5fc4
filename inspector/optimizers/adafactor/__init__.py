"""Adafactor (Shazeer & Stern 2018, "Adaptive Learning Rates with Sublinear Memory Cost", arXiv 1804.04235).

    g' = clipScale · g               β̂₂ₜ = 1 - t^-0.8                        (§7.2)
    matrices   R = β̂₂ₜ·R + (1-β̂₂ₜ)·(mean of g'² over a row + ε₁)             (algorithm 4)
               C = β̂₂ₜ·C + (1-β̂₂ₜ)·(mean of g'² over a column + ε₁)
               V̂ = R·Cᵀ / mean(R)
    vectors    V̂ = V = β̂₂ₜ·V + (1-β̂₂ₜ)·(g'² + ε₁)                            (algorithm 5)
    u = g'/√V̂       û = u / max(1, RMS(u)/d)       w = w - lr·( û + λ·w )

Without a first moment (β₁ = 0). The relative step is off: lr is the step size itself, not multiplied by the RMS of w,
so that the paper's ε₂, the least of that RMS, has no place. ε₁ = 1e-30 and d = 1 are constants, the paper's. β₂ and ε
of the settings are not used. R and C are means where the paper has sums, which leaves V̂ as it is and lets them be
compared with others. The decay is decoupled, as in AdamW; the paper has none.

A param of two or more dimensions is a stack of matrices over its last two. RMS(u) is over the whole param. Gradients
are clipped by their global norm before, elements that are not finite count as 0, and an update that is not finite
leaves w as it is.

torch.optim.Adafactor factors the last two dimensions as well. It multiplies min(lr, 1/√t) by max(ε₂, RMS(w)), so that
ε₂ = 1 and small weights leave lr; its ε₁ is the least of √V̂ and not in the sums; it decays w before the update.
optax.adafactor factors the two largest dimensions, and only where both are 128 or more; it multiplies by
max(1e-3, RMS(w)) unless told not to.
"""

from inspector.optimizers.adafactor.oracle import update_param
from inspector.optimizers.adafactor.plan import plan_adafactor, uniforms
from inspector.optimizers.adafactor.state import STATES
from inspector.optimizers.definition import Optimizer

BIAS = ("1-β̂₂ₜ", "β̂₂ₜ", "ε₁", "d")

ADAFACTOR = Optimizer(
    name="adafactor",
    title="Adafactor",
    state=(),
    plan=plan_adafactor,
    uniforms=uniforms,
    update=None,
    rule=None,
    settings=("lr", "weight_decay", "max_grad_norm"),
    kernels=("f32",),
    bias_names={"published": BIAS, "precise": BIAS},
    param_states=STATES,
    update_param=update_param,
)
