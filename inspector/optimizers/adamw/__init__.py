"""AdamW (Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization"), with global norm clipping."""

from inspector.optimizers.adamw.plan import plan_adamw, uniforms
from inspector.optimizers.definition import Optimizer

ADAMW = Optimizer(name="adamw", state=("m", "v"), plan=plan_adamw, uniforms=uniforms)
