"""Adam with L2 regularisation: weight decay added to the gradient, as before Loshchilov & Hutter 2019.

Kingma & Ba 2015, "Adam", algorithm 1, on the gradient g' + λ·w. The kernels and the plan are AdamW's with one
constant changed; the oracle is `inspector.optimizers.adamw.oracle.update` with `l2`.
"""

from functools import partial

from inspector.optimizers.adamw.oracle import update
from inspector.optimizers.adamw.plan import plan_adam_l2, uniforms
from inspector.optimizers.definition import ADAM_RULE, Optimizer

ADAM_L2 = Optimizer(
    name="adam-l2",
    title="Adam with L2",
    state=("m", "v"),
    plan=plan_adam_l2,
    uniforms=uniforms,
    update=partial(update, l2=True),
    rule=ADAM_RULE,
    adam=True,
    decay_in_gradient=True,
)
