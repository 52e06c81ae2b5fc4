"""Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) for hidden matrices, AdamW for the rest.

    g' = clipScale · g        m = μ·m + (1-μ)·g'        direction = μ·m + (1-μ)·g'  (Nesterov)
    X = direction / (‖direction‖ + 1e-7), five times:  A = XXᵀ,  X = aX + (bA + cA²)X
    v = √max(1, rows/columns) · X        w = w - lr·( v + λ·w )

with a, b, c = 3.4445, -4.7750, 2.0315, on the transpose where there are more rows than columns. As in KellerJordan/Muon
and torch.optim.Muon (its `adjust_lr_fn` "original"; "match_rms_adamw" has 0.2·√max(rows, columns) in place of the root)
the momentum is an average; the decay is decoupled and takes no part in that factor. Both of them run the iterations in
bfloat16, here the first two are in two floats a number and the others in float32: where a matrix has no rank they raise
what rounding left by up to 3.4445⁵ = 485. torch.optim.Muon divides by max(‖direction‖, 1e-7).

Hidden matrices are params of two or more dimensions but embeddings and heads by their names (`is_hidden`), less those
of `--no-muon`. More than two dimensions are flattened to the first by all others. μ is the setting β₁; β₂ and ε are
AdamW's alone. All params share lr, β₁ and λ unless AdamW's have settings of their own (`--adamw`).

v's place of a hidden matrix holds no second moment but what is subtracted, so that it can be looked at; it is made anew
in each step and need not be kept. Gradients are clipped, elements that are not finite count as 0, and an update that is
not finite leaves w as it is.
"""

from inspector.optimizers.adamw import ADAMW
from inspector.optimizers.definition import Optimizer
from inspector.optimizers.muon.hidden import billed, takes
from inspector.optimizers.muon.oracle import update
from inspector.optimizers.muon.plan import plan_muon

MUON = Optimizer(
    name="muon",
    title="Muon",
    state=("m", "v"),
    plan=plan_muon,
    uniforms=ADAMW.uniforms,
    update=update,
    rule=("common", "optimizers/muon/muon"),
    kernels=("f32",),
    rest=ADAMW,
    takes=takes,
    taken="hidden matrix",
    billed=billed,
    form=("no_muon",),
    in_place={"v": "the orthogonalised update"},
)
