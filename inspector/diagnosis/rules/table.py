"""All rules in the order in which they are told: what may be the cause of others comes first."""

from __future__ import annotations

from inspector.diagnosis.memory import Held
from inspector.diagnosis.rules import (
    clipping,
    eight_bit,
    gradients,
    half,
    layout_rules,
    norm,
    own_kernels,
    processes,
    settings,
    spikes,
    state,
    transitions,
    updates,
)
from inspector.diagnosis.rules.rule import Rule

_EXACT = "exact: no threshold"
_DEFINED = "the definition of AdamW (Loshchilov & Hutter 2019, algorithm 2)"
_HEALTHY = "healthy runs of charlm, 5,000 steps"

RULES: tuple[Rule, ...] = (
    # Layout and kernels: nothing that follows means anything where these fail.
    Rule(
        "misaligned-binding",
        "error",
        "a binding starts where the device cannot bind",
        "the limits of the device (WebGPU §3.6.2)",
        layout_rules.misaligned_binding,
    ),
    Rule(
        "overlapping-bindings",
        "error",
        "two bindings share bytes that are written, or two dispatches update the same elements",
        "WebGPU §3.4.5, usage scopes",
        layout_rules.overlapping_bindings,
    ),
    Rule(
        "unwritten-elements",
        "error",
        "no dispatch updates some elements of a param",
        _EXACT,
        layout_rules.unwritten_elements,
    ),
    # Several processes: what follows is of none of them where their numbers part.
    Rule(
        "parted-rank",
        "error",
        "of several processes one has a number that all should have alike: a setting, a step count, the norm that "
        "all clip by, or weights that it keeps a copy of",
        "exact; 1e-5 of a norm that all were told of",
        processes.parted_rank,
        beyond_rows=True,
        each=True,
    ),
    # What a step is given.
    Rule("nonfinite-loss", "error", "the loss is NaN or infinite", _EXACT, spikes.nonfinite_loss),
    Rule(
        "nonfinite-state",
        "error",
        "weights or moments are NaN or infinite, before the run began or since",
        _EXACT,
        state.nonfinite_state,
        beyond_rows=True,
        each=True,
    ),
    Rule(
        "nonfinite-gradient",
        "error",
        "gradients are NaN or infinite: how many, of which kind, where the first is, and the "
        "param with the smallest share first; the kernels take them as 0",
        _EXACT,
        gradients.nonfinite_gradient,
        beyond_light_rows=True,
    ),
    Rule(
        "negative-second-moment",
        "error",
        "v is below 0, which has no root",
        _DEFINED,
        state.negative_second_moment,
        needs="full",
    ),
    # The norm and clipping.
    Rule(
        "norm-overflow",
        "error",
        "the float32 sum of squares overflowed, so the clip scale is 0 and nothing trains",
        _EXACT,
        norm.norm_overflow,
    ),
    Rule(
        "norm-underflow",
        "warning",
        "the norm reads 0 although gradients are not 0",
        _EXACT,
        norm.norm_underflow,
        beyond_rows=True,
    ),
    Rule(
        "norm-mismatch",
        "error",
        "the norm differs from that in float64 by more than rounding explains",
        "the error of a sum of that depth (Higham 2002, §4.2)",
        norm.norm_mismatch,
        needs="full",
    ),
    Rule(
        "clip-scale-mismatch",
        "error",
        "the clip scale does not follow from the norm and the limit",
        "the accuracy of a division (WGSL §15.7.4)",
        norm.clip_scale_mismatch,
    ),
    Rule(
        "invalid-max-grad-norm",
        "error",
        "the clip limit is 0, negative or NaN",
        _EXACT,
        clipping.invalid_max_grad_norm,
    ),
    # What kernels left behind.
    Rule(
        "own-kernel-differs",
        "error",
        "your own kernel gives another w, m, v or mirror than the built-in one: which element, and "
        "the first line of the update that differs",
        "rounding: 1e-4 of the norm of the param",
        own_kernels.own_kernel_differs,
        beyond_rows=True,
    ),
    Rule(
        "update-not-applied",
        "error",
        "weights are as before although their update was not 0",
        _EXACT,
        transitions.update_not_applied,
        needs="full",
    ),
    Rule(
        "unexplained-weights",
        "error",
        "‖w‖ changed by more than the norm of the update",
        "the triangle inequality, 1e-4 for rounding",
        transitions.unexplained_weights,
        needs="full",
    ),
    Rule(
        "unexplained-moments",
        "error",
        "m or v do not follow from the moments and gradients of the step before",
        "the triangle inequality, 1e-4 for rounding",
        transitions.unexplained_moments,
        needs="full",
    ),
    Rule(
        "gradients-not-zeroed",
        "error",
        "gradients are left after the update",
        _EXACT,
        own_kernels.gradients_not_zeroed,
        beyond_rows=True,
    ),
    Rule(
        "padding-not-zero",
        "error",
        "elements between params are not 0",
        _EXACT,
        own_kernels.padding_not_zero,
        beyond_rows=True,
    ),
    # Settings.
    Rule(
        "invalid-setting",
        "warning",
        "a learning rate, β, ε or weight decay outside what AdamW is defined for",
        _DEFINED,
        settings.invalid_setting,
        each=True,
    ),
    Rule(
        "zero-eps",
        "warning",
        "ε is 0 in float32, or so small that a GPU may take it for 0",
        "the smallest normal float32 (WGSL §15.7.2)",
        settings.zero_eps,
    ),
    Rule(
        "unstable-betas",
        "warning",
        "β₁² is not below √β₂: v forgets what m still holds",
        "Kingma & Ba 2015, theorem 4.1",
        settings.unstable_betas,
    ),
    Rule(
        "decay-on-norm-or-bias",
        "warning",
        "weight decay pulls on norm gains or biases",
        "the usual split (GPT-3, nanoGPT): tensors of two or more dimensions decay",
        settings.decay_on_norm_or_bias,
    ),
    Rule(
        "zero-learning-rate",
        "warning",
        "the learning rate is 0 for 2 steps in a row",
        _EXACT,
        settings.zero_learning_rate,
    ),
    Rule(
        "learning-rate-jump",
        "warning",
        "the learning rate rises above 3 times all before, or falls by more than 20 times, in one step",
        "schedules in use: warm-up at most doubles, a step decay divides by 10",
        settings.learning_rate_jump,
    ),
    # State.
    Rule(
        "step-counter-reset",
        "warning",
        "moments of a long run, with a step counter that begins again",
        "bias correction: 1/(1-β₂ᵗ)",
        state.step_counter_reset,
        beyond_rows=True,
    ),
    Rule(
        "step-counter-stuck",
        "warning",
        "the step is beyond 2^24, up to which float32 counts, or the recorded step count of params stands still",
        _EXACT,
        state.step_counter_stuck,
    ),
    Rule(
        "missing-moments",
        "warning",
        "params without moments in a run that goes on",
        _EXACT,
        state.missing_moments,
        needs="full",
    ),
    Rule(
        "swapped-moments",
        "warning",
        "moments of params of one shape are exchanged: at first v fits the gradients of another, later m and v follow "
        "from those of another",
        "8 times apart either way, and within 2 exchanged; later what a sum of two vectors can come to",
        state.swapped_moments,
        needs="full",
    ),
    Rule(
        "left-linear-codes",
        "warning",
        "a run leaves linear 8-bit codes, and with them the limit on updates whose v is 0",
        _EXACT,
        eight_bit.left_linear_codes,
        needs="full",
    ),
    # Gradients over time.
    Rule(
        "gradient-spike",
        "warning",
        "the gradient norm is 16 times what its trend leads to, and 6 standard deviations about that away",
        f"{_HEALTHY}: up to 7.6 times",
        spikes.gradient_spike,
    ),
    Rule(
        "param-gradient-spike",
        "warning",
        "the norm of a param's gradient is 32 times what its trend leads to, and 6 standard deviations about that away",
        f"{_HEALTHY}: up to 12 times",
        spikes.param_gradient_spike,
        needs="full",
    ),
    Rule(
        "exploding-gradient",
        "warning",
        "the gradient norm stays at 10 times what it was for 8 steps",
        _HEALTHY,
        gradients.exploding_gradient,
    ),
    Rule(
        "vanishing-gradient",
        "warning",
        "the gradient norm stays below a thousandth of what it was, and the loss has not come down",
        _HEALTHY,
        gradients.vanishing_gradient,
    ),
    Rule(
        "dead-gradient",
        "warning",
        "all gradients of a param are 0 for 16 steps while others have some",
        "longer than an expert without tokens or an adapter that begins at 0 takes",
        gradients.dead_gradient,
        needs="full",
    ),
    Rule(
        "no-gradient",
        "warning",
        "all gradients are 0 for 8 steps",
        _EXACT,
        gradients.no_gradient,
        beyond_rows=True,
    ),
    Rule(
        "intermittent-gradient",
        "warning",
        "all gradients are 0 in at least half of 16 steps, and there again after as many steps each time: the "
        "optimizer steps more often than gradients come",
        _EXACT,
        gradients.intermittent_gradient,
    ),
    Rule(
        "clip-collapse",
        "warning",
        "the clip scale is below a thousandth",
        f"{_HEALTHY}: above 0.1",
        clipping.clip_collapse,
    ),
    Rule(
        "loss-scaled-gradient",
        "warning",
        "the norm is 1,024 times the clip limit for 8 steps: a loss scale is still on the gradients",
        "loss scales in use: 2^10 to 2^24 (PyTorch GradScaler: 2^16)",
        clipping.loss_scaled_gradient,
    ),
    Rule(
        "clip-saturated",
        "warning",
        "all of the last 128 steps were clipped to less than a tenth",
        _HEALTHY,
        clipping.clip_saturated,
    ),
    # The update.
    Rule(
        "lagging-second-moment",
        "warning",
        "elements move by more than 2 learning rates because v lags behind g²: a loss spike often "
        "follows; one alone is a note",
        f"{_HEALTHY}: up to 1.1; RMSₜ 2 (Wortsman et al. 2023: 2.3)",
        updates.lagging_second_moment,
        needs="full",
    ),
    Rule(
        "large-update",
        "warning",
        "‖Δw‖/‖w‖ is above 0.2 in one step",
        f"{_HEALTHY}: up to 0.02",
        updates.large_update,
        needs="full",
    ),
    Rule(
        "starved-update",
        "warning",
        "the rms of an update is below a thousandth of the learning rate for 32 steps",
        f"{_HEALTHY}: above 0.03",
        updates.starved_update,
        needs="full",
    ),
    Rule(
        "unchanged-param",
        "warning",
        "a param has gradients and does not change for 8 steps",
        _EXACT,
        updates.unchanged_param,
        needs="full",
    ),
    Rule(
        "lost-update",
        "warning",
        "half of the updates of a param are below half a ULP of its weights for 8 steps",
        f"{_HEALTHY}: up to 2%",
        updates.lost_update,
        needs="full",
    ),
    Rule(
        "eps-dominates",
        "warning",
        "√v̂ is below ε in half of the elements of a param for 8 steps",
        f"{_HEALTHY}: none",
        updates.eps_dominates,
        needs="full",
    ),
    Rule(
        "zero-second-moment",
        "warning",
        "v is 0 under an m that is not in 1% of a param",
        f"{_HEALTHY}: none",
        updates.zero_second_moment,
        needs="full",
    ),
    # 8-bit state and half precision.
    Rule(
        "wrong-state-type",
        "warning",
        "m and v are not kept as asked for, or no param is large enough for 8 bits",
        _EXACT,
        eight_bit.wrong_state_type,
    ),
    Rule(
        "zeroed-second-moment",
        "warning",
        "8-bit v rounds to 0 under an m that does not: 90% of a param in linear codes "
        "(from 10% on a note), 5% in others",
        "healthy runs of charlm in each codec: up to 54% and 0.1%",
        eight_bit.zeroed_second_moment,
        needs="full",
    ),
    Rule(
        "block-outlier",
        "warning",
        "an m is 508 times the median of its param, so that linear codes of the others in its block of 256 are 0",
        "127 codes either way: a typical element is a quarter of one",
        eight_bit.block_outlier,
        needs="full",
        needs_coding=True,
        beyond_rows=True,
    ),
    Rule(
        "coding-error-too-large",
        "error",
        "m or v in 8 bits are further off than the codec can be",
        "the spacing of the codes",
        eight_bit.coding_error_too_large,
        needs="full",
        needs_coding=True,
        beyond_rows=True,
    ),
    Rule(
        "f16-overflow",
        "error",
        "weights are infinite in half precision",
        _EXACT,
        half.f16_overflow,
        needs="full",
    ),
    Rule(
        "f16-underflow",
        "warning",
        "1% of the weights of a param are 0 in half precision and not in float32",
        _HEALTHY,
        half.f16_underflow,
        needs="full",
    ),
    Rule(
        "stuck-mirror",
        "warning",
        "half of the weights of a param need more than 64 steps, all in one direction, to change in half precision, "
        "for 8 steps",
        f"the spacing of float16; {_HEALTHY} in half precision: up to 2 steps",
        half.stuck_mirror,
        needs="full",
    ),
    # What comes of it.
    Rule(
        "loss-spike",
        "warning",
        "the loss is 6 standard deviations about its trend, and a quarter, above the last 128 steps",
        f"{_HEALTHY}: up to 3.6",
        spikes.loss_spike,
    ),
    Rule(
        "loss-divergence",
        "warning",
        "the median loss of 16 steps is above all of the window before, by a quarter of its mean",
        _HEALTHY,
        spikes.loss_divergence,
    ),
)

RULES_BY_NAME = {rule.name: rule for rule in RULES}
RULE_NAMES = tuple(RULES_BY_NAME)
"""The rules as findings name them."""

HELD: dict[str, Held] = {
    "dead": gradients.is_dead,
    "calm": updates.is_calm,
    "starved": updates.is_starved,
    "stuck": updates.is_stuck,
    "lost": updates.is_lost,
    "eps": updates.is_ruled_by_eps,
    "mirror": half.is_behind,
}
"""What may go on for several steps in a row, by param: the memory counts for how many."""
