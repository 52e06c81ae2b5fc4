"""AdamW (Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization"), with global norm clipping."""

from inspector.optimizers.adamw.oracle import update
from inspector.optimizers.adamw.plan import plan_adamw, uniforms
from inspector.optimizers.definition import ADAM_RULE, Optimizer

ADAMW = Optimizer(
    name="adamw",
    title="AdamW",
    state=("m", "v"),
    plan=plan_adamw,
    uniforms=uniforms,
    update=update,
    rule=ADAM_RULE,
    adam=True,
)
