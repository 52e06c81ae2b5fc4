"""What coding m and v in 8 bits did to a recorded run, worked out of the states and gradients that it captured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inspector.codecs import encode
from inspector.coding_error import ParamCodingError, merged_error, param_coding_error
from inspector.errors import UsageError
from inspector.floats import F64Array
from inspector.layout import Param
from inspector.optimizers.adamw.oracle_8bit import update_decoded
from inspector.param_hyper import ParamStep, step_of
from inspector.session.reader import Session
from inspector.session.records import RecordedStep

MOST_STEPS = 64
MOST_ELEMENTS = 1 << 28
"""Elements updated by numpy in all, at one step at least: some seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class CodingErrors:
    """By step, over all params with 8-bit state: the rms error of m and v over their rms, and v that became 0.

    Read-only arrays of one value a step: `steps` int64 ascending, the rest float64.
    """

    steps: npt.NDArray[np.int64]
    m: F64Array
    v: F64Array
    lost: F64Array


def coding_errors(session: Session, check: Callable[[], None] = lambda: None) -> CodingErrors:
    """At most `MOST_STEPS` of the steps that can be worked out, evenly spread; `check` is called between params."""
    known = [step for step in _candidates(session) if session.step(step).variant.kernel == "8bit"]
    elements = sum(p.numel for p in session.about.params)
    most = max(min(MOST_STEPS, MOST_ELEMENTS // max(elements, 1)), 1)
    chosen = [known[round(i)] for i in np.linspace(0, len(known) - 1, min(most, len(known)))]
    found = [(step, error) for step in chosen if (error := _step_error(session, step, check)) is not None]
    arrays = (
        np.array([step for step, _ in found], np.int64),
        np.array([error.m.relative for _, error in found], np.float64),
        np.array([error.v.relative for _, error in found], np.float64),
        np.array([error.lost for _, error in found], np.float64),
    )
    for array in arrays:
        array.flags.writeable = False
    return CodingErrors(*arrays)


def _candidates(session: Session) -> list[int]:
    """The steps whose gradients were captured, and the state before them."""
    keyframes = set(session.captures("keyframe"))
    return [s for s in session.captures("gradients") if s - 1 in keyframes and s in session.steps]


def _step_error(session: Session, step: int, check: Callable[[], None]) -> ParamCodingError | None:
    recorded = session.step(step)
    if recorded.clip_scale is None:
        return None
    gradients = session.gradients(step)
    errors = []
    for number, param in enumerate(session.about.params):
        check()
        taken = step_of(recorded.hyper, number, param.block, step)
        # An idle param is not coded anew.
        error = (
            None if taken.idle else _param_error(session, recorded, param, taken, gradients.get(param.name))
        )
        errors += [] if error is None else [error]
    return merged_error(errors) if errors else None


def _param_error(
    session: Session,
    step: RecordedStep,
    param: Param,
    taken: ParamStep,
    given: npt.NDArray[np.float32] | None,
) -> ParamCodingError | None:
    try:
        before = session.codes(step.step - 1, param.name)
    except UsageError:
        # Its state is float32.
        return None
    m, v = (each.astype(np.float32) for each in before.decoded(param.numel))
    g = np.zeros(param.numel, np.float32) if given is None else given
    form = step.variant
    assert step.clip_scale is not None
    with np.errstate(all="ignore"):
        done, _ = update_decoded(
            session.tensor("w", step.step - 1, param.name).reshape(-1), g, m, v,
            codec=form.codec, scale=step.clip_scale, hyper=taken.hyper, step=taken.step,
            decays=taken.decays, numerics=form.numerics, l2=form.optimizer == "adam-l2", dtype=np.float32,
        )  # fmt: skip
        m, v = (np.asarray(each, np.float32) for each in (done.m, done.v))
        return param_coding_error(
            param.name, form.codec, m, v, encode(form.codec, "m", m), encode(form.codec, "v", v)
        )
