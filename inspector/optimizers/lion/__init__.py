"""Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", arXiv 2302.06675, algorithm 2).

    g' = clipScale · g        blend = β₁·m + (1-β₁)·g'        w = w - lr·( sign(blend) + λ·w )
    m = β₂·m + (1-β₂)·g'

sign(0) is 0. The decay is decoupled, as in AdamW. Gradients are clipped, elements that are not finite count as 0, and
an update that is not finite leaves w as it is. The paper takes β₁ 0.9 and β₂ 0.99, a learning rate 3 to 10 times
smaller than AdamW's and a λ as many times larger (§5); the settings of a run stay as they are given. ε is not used.
"""

from inspector.optimizers.definition import UNUSED, Optimizer
from inspector.optimizers.element_wise import planner
from inspector.optimizers.lion.oracle import uniforms, update
from inspector.optimizers.update_form import UpdateForm

LION = Optimizer(
    name="lion",
    title="Lion",
    state=("m",),
    plan=planner(UpdateForm("optimizers/lion/lion_update", ("m",))),
    uniforms=uniforms,
    update=update,
    rule=("common", "optimizers/lion/lion"),
    settings=("lr", "beta1", "beta2", "weight_decay", "max_grad_norm"),
    kernels=("f32",),
    bias_names={"published": (UNUSED,) * 4, "precise": ("1-β₁", "1-β₂", UNUSED, UNUSED)},
)
