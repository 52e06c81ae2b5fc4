"""SGD with momentum (Polyak 1964; Sutskever et al. 2013, without Nesterov's step), as torch.optim.SGD(momentum=μ).

    g' = clipScale · g        direction = g' + λ·w        m = μ·m + direction        w = w - lr·m

μ is the setting β₁. There is no dampening, so m of the first step is its direction, as PyTorch starts it. Gradients are
clipped, what is not finite is left out, as in `sgd`. Of the settings β₂ and ε are not used.
"""

from inspector.optimizers.definition import NO_BIAS, Optimizer
from inspector.optimizers.element_wise import planner, uniforms_without_bias
from inspector.optimizers.momentum.oracle import update
from inspector.optimizers.update_form import UpdateForm

MOMENTUM = Optimizer(
    name="momentum",
    title="SGD with momentum",
    state=("m",),
    plan=planner(UpdateForm("optimizers/momentum/momentum_update", ("m",))),
    uniforms=uniforms_without_bias,
    update=update,
    rule=("common", "optimizers/momentum/momentum"),
    settings=("lr", "beta1", "weight_decay", "max_grad_norm"),
    kernels=("f32",),
    bias_names=NO_BIAS,
    decay_in_gradient=True,
)
