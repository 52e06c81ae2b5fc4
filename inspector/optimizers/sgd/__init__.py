"""Stochastic gradient descent (Robbins & Monro 1951), weight decay as L2 in the gradient, as torch.optim.SGD has it.

    g' = clipScale · g            direction = g' + λ·w            w = w - lr·direction

With the pipeline's own rules: the gradient is clipped by its global norm, elements that are not finite count as 0, and
an update that is not finite leaves w as it is. Of the settings β₁, β₂ and ε are not used.
"""

from inspector.optimizers.definition import NO_BIAS, Optimizer
from inspector.optimizers.element_wise import planner, uniforms_without_bias
from inspector.optimizers.sgd.oracle import update
from inspector.optimizers.update_form import UpdateForm

SGD = Optimizer(
    name="sgd",
    title="SGD",
    state=(),
    plan=planner(UpdateForm("optimizers/sgd/sgd_update", ())),
    uniforms=uniforms_without_bias,
    update=update,
    rule=("common", "optimizers/sgd/sgd"),
    settings=("lr", "weight_decay", "max_grad_norm"),
    kernels=("f32",),
    bias_names=NO_BIAS,
    decay_in_gradient=True,
)
