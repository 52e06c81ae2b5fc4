"""Opening a source in place of the run that there is, a race as well; ending it, and a device that was lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from inspector.errors import DeviceLostError, InspectorError
from inspector.optimizers import optimizer, runs_as
from inspector.plan import Variant
from inspector.progress import EndedError, part
from inspector.runtime import commands as c
from inspector.runtime.breakpoints import Breakpoints, higher
from inspector.runtime.companions import Companions
from inspector.runtime.current_run import CurrentRun
from inspector.runtime.engine import Engine
from inspector.runtime.guarding import guarded
from inspector.runtime.long_work import LongWork
from inspector.runtime.mailbox import Mailbox
from inspector.runtime.moving import Moving
from inspector.runtime.parts import OpenRun
from inspector.runtime.publishing import Publisher
from inspector.runtime.race_host import check_lanes
from inspector.runtime.recorded import RecordedRun
from inspector.runtime.saved_race import saved_race
from inspector.runtime.side_work import SideWork
from inspector.runtime.travel import Travel
from inspector.sources.base import AsRecorded, Source, remarks_of
from inspector.sources.open import form_of
from inspector.sources.recording import Recording
from inspector.statistics import StatsLevel
from inspector.stepping import HostState, Stepper

OPENED = 0.4
"""The share of an opening after which the source is there, and what it holds goes to the device."""
BRIEF_SIGNS = 420
"""Of what is told of a source as it opens."""


class Opening:
    """Puts another run in the place of the one in `run`.

    `reread` gives the variant to start a source with: own kernels as they are in their files by then.
    """

    def __init__(
        self,
        opener: OpenRun,
        run: CurrentRun,
        moving: Moving,
        work: SideWork,
        beside: Companions,
        long: LongWork,
        mail: Mailbox,
        publisher: Publisher,
        reread: Callable[[Variant], Variant],
    ) -> None:
        self._opener = opener
        self._run = run
        self._moving = moving
        self._work = work
        self._beside = beside
        self._long = long
        self._mail = mail
        self._publisher = publisher
        self._reread = reread
        self._set_aside: tuple[Variant, Variant] | None = None
        """The form that was chosen, while a source runs in one of its own, and that one."""

    # --- opening

    def open(self, spec: str, lanes: tuple[str, ...] = (), front: int | None = None) -> None:
        """Open a source, with `lanes` as a race; of a race that was saved the lane `front`. Tells what goes wrong."""
        guarded(self._run, partial(self._open_or_end, spec, lanes, front))
        if self._run.engine is None and self._run.mode == "starting":
            self._run.mode = "failed"

    def start_race(self, lanes: tuple[str, ...]) -> None:
        """Race from the start of the source that is open; UsageError for lanes that cannot."""
        engine = self._run.engine
        check_lanes(lanes, self._run.variant, () if engine is None else engine.source.params)
        saved = self._run.race.saved
        self.open(self._run.spec if saved is None else saved.file.source, lanes)

    def front_lane(self, number: int) -> None:
        """Another lane of the race is shown and moved."""
        run = self._run
        if run.race.saved is not None:
            self.open(run.spec, front=number)
        elif run.race:
            run.pause()
            self._move(run.race.bring_to_front(number, run.breakpoints))
            run.viewer.forget()
            run.on_the_way.start()

    def _open_or_end(self, spec: str, lanes: tuple[str, ...], front: int | None) -> None:
        try:
            self._open(spec, lanes, front)
        except EndedError:
            left = "What was open stays." if self._run.mode != "starting" else "Nothing is open now."
            self._run.say("info", f"The opening of {spec} was ended. {left}")

    def _open(self, spec: str, lanes: tuple[str, ...], front: int | None) -> None:
        run, doing = self._run, f"Opening {spec}"
        shown = run.race.saved
        if front is None or shown is None:
            saved = self._long.run(doing, lambda: saved_race(spec), share=(0, 0.1))
        else:
            saved = shown.with_front(front)
        opened_spec = spec if saved is None else saved.spec
        source = self._long.run(doing, lambda: self._opener.open_source(opened_spec), share=(0.1, OPENED))
        other = front is not None or spec != run.spec
        wanted = self._form_of(source, self._reread(run.variant), anew=run.opened > 0 and other)
        if run.engine is not None:
            # What cannot run is told while the run that there is still stands; a lost device tells nothing.
            with suppress(DeviceLostError):
                run.engine.stepper.check_form(source.params, wanted)
        run.variant = wanted
        # The old device goes first: two of them may not fit.
        self.close()
        opened_before = run.spec if run.opened else ""
        run.mode, run.stale, run.spec = "starting", False, spec
        run.opened += 1
        run.worked_out.forget()
        run.breakpoints.forget()
        run.to.found = None
        run.viewer.forget()
        self._publisher.publish()
        run.race.saved = saved
        if saved is not None and front is None:
            self._beside.sweeping.show(saved.path)
        begin = partial(run.race.start, texts=lanes) if lanes else opened
        engine = self._long.run(
            doing,
            lambda: begin(self._opener, source, variant=wanted, stats=run.stats, breakpoints=run.breakpoints),
            share=(OPENED, 1),
        )
        run.stats = engine.stats_level
        self._beside.opened(source, self._opener.hyper(source), wanted)
        self._move(engine)
        self._work.opened(source)
        run.shaders.opened(wanted, anew=spec != opened_before)
        run.pace.opened(engine)
        run.mode = "paused"
        run.keeping.opened(engine)
        run.on_the_way.start()
        if remarks := remarks_of(source):
            run.say("warning", _in_brief(remarks))
        elif not lanes and (stepped := runs_as(wanted, source.params)):
            run.say("info", f"{optimizer(wanted.optimizer).title} steps {spec} {stepped}.")

    def _move(self, engine: Engine) -> None:
        """From here on commands are for this engine."""
        run = self._run
        if run.engine is not None:
            run.engine.plotting = None
        run.engine = engine
        engine.plotting = self._beside.plotting
        step = partial(self._moving.step_iteration, engine)
        run.travel = Travel(engine, step, run.say, self._asked_otherwise)

    def _asked_otherwise(self) -> bool:
        """While a state is put on the device: tell how far it is; True where something else is to be done."""
        self._publisher.progressed()
        ends = (c.Seek, c.CancelSeek, c.Pause, c.OpenSource, c.Shutdown)
        return self._run.closing() or any(isinstance(command, ends) for command in self._mail.look())

    def _form_of(self, source: Source, variant: Variant, *, anew: bool) -> Variant:
        """The form that a source is opened in: where another one is opened, that in which it was recorded, or as its
        optimizer ran.

        What was chosen before that comes back with the next source that asks for nothing.
        """
        if not anew:
            return variant
        chosen, self._set_aside = self._set_aside, None
        if chosen is not None and chosen[1] == variant:
            variant = chosen[0]
        form = form_of(source)
        if form is None:
            return variant
        if isinstance(source, AsRecorded):
            wanted = replace(form, own=variant.own)
        else:
            # What its optimizer alone has decides on the shapes of its states.
            own_parts = optimizer(form.optimizer).form
            parts = ("optimizer", "numerics", "kernel", "codec", "small_state", *own_parts)
            wanted = replace(variant, **{part: getattr(form, part) for part in parts})
        self._set_aside = variant, wanted
        return wanted

    # --- a device that is lost, and the end

    def recover(self, engine: Engine) -> None:
        """Go on with a new device from the state that is kept on the host."""
        run = self._run
        if run.race:
            # All lanes were on the device: they start again, alike.
            self.open(run.spec, run.race.texts)
            return
        doing = "Opening a new device"

        def make() -> Stepper:
            with part(0, 0.3):
                state = engine.checkpoint or engine.source.initial_state()
            engine.stepper.close()
            with part(0.3, 1):
                return self._opener.make_stepper(engine.source, engine.stepper.plan.variant, state)

        try:
            stepper = self._long.run(doing, make)
        except EndedError:
            run.say("info", "No new device was opened. What is shown is stale: recover to go on.")
            return
        engine.stats_level = run.stats = higher(run.stats, run.breakpoints.needs)
        # Where it is ended among the steps that run again, the run goes on from there.
        with suppress(EndedError):
            self._long.run(doing, lambda: engine.recover(stepper))
        run.viewer.forget()
        run.stale, run.mode = False, "paused"
        run.say("info", f"Recovered on a new device, after step {stepper.cursor.finished_steps:,}.")
        engine.begin()

    def end_recording(self) -> None:
        """End the recording, if one goes on: a person may leave out what is still to be written, the end of the window
        does not."""
        self._long.run("Ending the recording", self._run.end_recording, outlasts=True)

    def close(self) -> None:
        """End the run and its device, with all that goes on in it."""
        run = self._run
        self.end_recording()
        if run.to.search is not None:
            # On a device that is lost there is nothing to give back.
            with suppress(InspectorError):
                run.to.end_search()
        with suppress(InspectorError):
            self._work.close()
        if run.engine is not None:
            # It may be lost already, which is what closing is for.
            with suppress(InspectorError):
                if not run.race.close():
                    run.engine.stepper.close()
            run.engine = run.travel = None


def opened(
    opener: OpenRun,
    source: Source,
    variant: Variant,
    stats: StatsLevel,
    breakpoints: Breakpoints | None = None,
) -> Engine:
    """A run of `source` from its first state; of a recording without any captured state, one that only shows it."""
    recorded = RecordedRun(source) if isinstance(source, Recording) else None
    nowhere = recorded is not None and not len(recorded.picture.keyframes)
    finished = recorded.steps.start - 1 if recorded is not None else 0
    if recorded is None or recorded.source.stretches:
        state = source.initial_state()
    else:
        state = (
            HostState({}, {}, {}, finished) if nowhere else recorded.state(int(recorded.picture.keyframes[0]))
        )
    layout = None
    if recorded is not None and recorded.source.first_step in recorded.steps:
        layout = recorded.session.layout(recorded.source.first_step)
    stepper = opener.make_stepper(source, variant, state, layout)
    engine = Engine(
        source, stepper, hyper=opener.hyper(source), stats=stats, breakpoints=breakpoints, recorded=recorded,
        make=opener.make_stepper,
    )  # fmt: skip
    engine.nowhere = nowhere
    return engine


def _in_brief(sentences: Sequence[str]) -> str:
    """As many sentences as a person reads at a glance, and where the others are."""
    count = 1
    while count < len(sentences) and len(" ".join(sentences[: count + 1])) <= BRIEF_SIGNS:
        count += 1
    left = len(sentences) - count
    more = f" ({left} more: inspector layout lists them)" if left else ""
    return " ".join(sentences[:count]) + more
