"""The form of the step changed while a run is open: other settings of its variant, and kernels that were edited."""

from __future__ import annotations

from inspector.errors import UsageError
from inspector.plan import Variant
from inspector.runtime.current_run import CurrentRun
from inspector.runtime.engine import Engine
from inspector.stepping import lost_moments


def set_variant(run: CurrentRun, engine: Engine, variant: Variant) -> None:
    """Run in another form from here on, laid out anew where it has to be. UsageError where that cannot be."""
    kept = engine.stepper.undo_info.dispatches
    warning = ""
    try:
        if engine.stepper.can_take(variant):
            engine.set_variant(variant)
        elif run.race:
            raise UsageError(
                "Params of a lane stay where they are laid out: end the race for another such form."
            )
        else:
            warning = _lay_out_anew(engine, variant)
    finally:
        # Where it fails, the state of before is on another stepper.
        run.viewer.moved()
    run.variant = variant
    if warning:
        run.say("warning", warning)
    elif kept:
        run.say("info", "Another form begins here: what ran before it cannot be taken back.")


def try_shader(run: CurrentRun, engine: Engine, entry_point: str, text: str | None) -> None:
    """Another kernel in place, and the step again from its start to where it stands."""
    run.pause()
    if engine.recorded is not None and (glance := run.on_the_way.glance) is not None:
        raise UsageError(glance.missing or "The step on show is not on the device yet: wait until it is.")
    try:
        run.shaders.put(engine, entry_point, text)
    finally:
        run.variant = engine.stepper.plan.variant
        run.viewer.moved()


def _lay_out_anew(engine: Engine, variant: Variant) -> str:
    """The same state on a new stepper; a warning of what comes of it."""
    before = engine.stepper.plan.variant
    state = engine.lay_out_anew(variant)
    limited = [v.kernel == "8bit" and v.codec == "linear" for v in (before, variant)]
    lost = lost_moments(state) if limited == [True, False] else 0
    if not lost:
        return ""
    return (
        f"{lost:,} v became 0 in linear codes, under an m that is not 0. Nothing limits their update in this form: "
        "each moves by about lr·m̂/ε in the next step. Go back to linear codes, or raise ε before you go on."
    )
