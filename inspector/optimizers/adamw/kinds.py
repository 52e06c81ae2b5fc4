"""The kinds of difference between an update of another program and AdamW: what each is called, and who computes so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Part = Literal["moments", "weights", "whole"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of difference: `words` end the sentence "The framework's step has …"; `source` is who computes so."""

    key: str
    part: Part
    words: str
    source: str


KINDS: dict[str, Kind] = {
    kind.key: kind
    for kind in (
        Kind("skipped", "whole", "no update: w, m and v stayed as they were",
             "GradScaler.step after an overflow, and params whose grad is None"),
        Kind("nonfinite", "whole", "NaN or infinity taken from the gradient; the kernels here take it as 0",
             "PyTorch: torch.optim.adam does not look for non-finite gradients"),
        Kind("sign", "moments", "the gradient with its sign turned (maximize)", "PyTorch: maximize=True"),
        Kind("clip-missing", "moments", "the gradient without clipping", "no clip_grad_norm_ before the step"),
        Kind("clip-twice", "moments", "the gradient clipped twice", "clip_grad_norm_ and a clip in the optimizer"),
        Kind("unscaled-missing", "moments", "a gradient that was not divided by the loss scale",
             "a GradScaler without unscale_ before the step"),
        Kind("clip-norm", "moments", "a clip scale of a norm that was added up otherwise",
             "sums of squares in float32, which lose some of many elements"),
        Kind("gradient-factor", "moments", "another factor on the gradient",
             "accumulated gradients summed instead of averaged, or the other way round"),
        Kind("l2", "moments", "the decay in the gradient (L2) instead of apart from it",
             "torch.optim.Adam(weight_decay=…), Adam before Loshchilov & Hutter 2019"),
        Kind("l2-missing", "moments", "no decay in the gradient", "torch.optim.Adam(weight_decay=0)"),
        Kind("betas-swapped", "moments", "β₁ and β₂ in each other's place", "betas=(β₂, β₁)"),
        Kind("no-dampening", "moments", "m = β₁·m + g without the factor 1-β₁", "momentum as in torch.optim.SGD"),
        Kind("float32-betas", "moments", "1-β formed from a β that was rounded to float32",
             "the published kernel: 1-β₂ of 0.999 is 1.3e-5 too small"),
        Kind("moments-bf16", "moments", "m and v kept in bfloat16",
             "a model in bfloat16, or an optimizer state cast to it"),
        Kind("moments-f16", "moments", "m and v kept in float16", "a model in float16"),
        Kind("moments-skipped", "moments", "m and v that were not updated",
             "a state that was restored after the step"),
        Kind("beta1", "moments", "another β₁", "a setting that changed between recording and step"),
        Kind("beta2", "moments", "another β₂", "a setting that changed between recording and step"),
        Kind("eps-inside", "weights", "ε inside the root, √(v̂+ε)", "Kingma & Ba's first form; optax eps_root"),
        Kind("eps-before", "weights", "ε added before the bias correction of v, √v + ε",
             "tf.train.AdamOptimizer (epsilon hat), transformers.AdamW before 4.0"),
        Kind("no-correction", "weights", "no bias correction", "BertAdam, correct_bias=False"),
        Kind("no-correction-m", "weights", "no bias correction of m", "a missing division by 1-β₁ᵗ"),
        Kind("no-correction-v", "weights", "no bias correction of v", "a missing division by 1-β₂ᵗ"),
        Kind("float32-corrections", "weights", "1-βᵗ formed in float32", "the published kernel"),
        Kind("t-behind", "weights", "a step count one behind", "bias corrections formed before step += 1"),
        Kind("t-ahead", "weights", "a step count one ahead", "step += 1 twice, or counted from 2"),
        Kind("t-other", "weights", "another step count", "the run's count for a param that joined later"),
        Kind("decay-after", "weights", "the decay taken of w after the update", "w -= lr·λ·w behind the update"),
        Kind("decay-unscaled", "weights", "a decay that is not multiplied by lr",
             "w·(1-λ), Loshchilov & Hutter's η = 1"),
        Kind("decay-off", "weights", "no decay", "a param in the group without decay"),
        Kind("decay-on", "weights", "decay where none was set", "a param in the group with decay"),
        Kind("decay-decoupled", "weights", "decay apart from the gradient", "AdamW instead of Adam with L2"),
        Kind("decay-other", "weights", "another λ", "a setting that changed between recording and step"),
        Kind("lr-of", "weights", "the lr of another step", "scheduler.step() before optimizer.step(), or twice"),
        Kind("lr-other", "weights", "another lr", "a setting that changed between recording and step"),
        Kind("amsgrad", "weights", "the largest v so far in the denominator (amsgrad)",
             "Reddi et al. 2018; amsgrad=True"),
        Kind("weights-bf16", "weights", "w rounded to bfloat16 after the step",
             "bfloat16 weights without a float32 master"),
        Kind("weights-f16", "weights", "w rounded to float16 after the step",
             "float16 weights without a float32 master"),
        Kind("weights-skipped", "weights", "a w that was not written", "updates computed but not applied"),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Named:
    """A kind of difference, with the number that was worked out where there is one ("0.0003, that of step 7")."""

    key: str
    value: str = ""

    @property
    def kind(self) -> Kind:
        """What is known of it beyond this step."""
        return KINDS[self.key]

    def __str__(self) -> str:
        return f"{self.kind.words}: {self.value}" if self.value else self.kind.words
