"""Snapshots of the run that is open: made where it has moved, and sent no more often than a screen needs them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from inspector.runtime.companions import Companions
from inspector.runtime.current_run import CurrentRun
from inspector.runtime.engine import Engine
from inspector.runtime.guarding import guarded
from inspector.runtime.memory_picture import RunMemory
from inspector.runtime.snapshots import Glance, Mark, Snapshot
from inspector.runtime.value_finding import Working

FRAME_S = 1 / 25
"""While running, at most so often a snapshot is sent."""
PROGRESS_S = 0.2
"""While something takes long, at most so often a snapshot is sent: what it takes is seen in no time measured."""


class Publisher:
    """Looks at the run, and at what goes on beside it, and sends what there is to see."""

    def __init__(self, run: CurrentRun, beside: Companions) -> None:
        self._run = run
        self._beside = beside
        self._memory = RunMemory()
        self._serial = 0
        self._sent_at = -float("inf")
        self.moves = 0
        """How many of MOVES have been carried out."""
        self.owes = False
        """True where not all that is looked at of this moment has been sent."""
        self.last = Snapshot(0, "starting", run.spec)
        """The newest one."""
        self.send: Callable[[Snapshot], None] = lambda snapshot: None
        """Called with each, on the worker's thread."""

    @property
    def serial(self) -> int:
        """The number of the newest snapshot."""
        return self._serial

    @property
    def shows_way(self) -> bool:
        """True where the step that is being gone to is on show already."""
        glance = self._run.on_the_way.glance if self._run.traveling else None
        return glance is not None and self.last.glance is not None and glance.step == self.last.glance.step

    # --- sending

    def publish(self, *, force: bool = True) -> None:
        """Send what there is to see; unless it is forced, not before the next frame.

        Where the run has moved and to look at all of it takes long, it sends where the run stands and `owes` the rest,
        which the next call sends.
        """
        run = self._run
        if not force and time.perf_counter() - self._sent_at < FRAME_S:
            return
        self._serial += 1
        self.owes = False
        if run.keeping.has_ended:
            guarded(run, run.end_recording)
        engine = run.engine
        if engine is not None and run.mode in ("paused", "running"):
            self._look(engine)
        on_show = run.travel.cursor if run.travel is not None else None
        self._beside.look(engine, on_show, run.viewer.asked_histograms)
        for severity, text in self._beside.take_news():
            run.say(severity, text)
        if engine is None or run.mode in ("starting", "failed"):
            snapshot = self._without_run()
        elif run.stale:
            snapshot = self._stale()
        else:
            snapshot = self._picture(engine)
        self.last = snapshot
        self._sent_at = time.perf_counter()
        if not run.closing():
            self.send(snapshot)

    def progressed(self) -> None:
        """Something goes on that takes long: send how far it is, now and then."""
        if time.perf_counter() - self._sent_at > PROGRESS_S:
            self.publish()

    def tell_working(self, working: Working) -> None:
        """How far something is, beside what was last seen of the run, which may not be looked at now."""
        if self._run.closing():
            # Nobody looks any more.
            return
        self._serial += 1
        self._sent_at = time.perf_counter()
        self.send(replace(self.last, serial=self._serial, working=working))

    # --- looking

    def _look(self, engine: Engine) -> None:
        """See anew what is looked at of the run."""
        run = self._run
        running = run.mode == "running"
        glance = run.travel.glance if run.travel is not None else None
        same = self.last.run == run.opened and self.last.plan is engine.stepper.plan
        if glance is None and not running and same and run.viewer.is_behind:
            self.owes = True
            guarded(run, partial(run.viewer.refresh, engine.stepper, running=False, quick=True))
            return
        if glance is not None and engine.recorded is not None:
            look = partial(run.viewer.glance, engine.recorded, glance, engine.stepper.layout)
        else:
            look = partial(run.viewer.refresh, engine.stepper, running=running)
        engine.eight_bit.mapped = run.viewer.maps_coding_error
        guarded(run, look)
        guarded(run, partial(self._look_closely, engine, glance, running=running))
        guarded(run, lambda: engine.eight_bit.refresh(running=running))
        guarded(run, lambda: run.race.look_at_decay(engine, running=running))
        if engine.eight_bit.said is not None:
            run.say("info", engine.eight_bit.said)
            engine.eight_bit.said = None

    def _look_closely(self, engine: Engine, glance: Glance | None, *, running: bool) -> None:
        closeups = self._run.viewer.closeups
        if glance is not None and engine.recorded is not None:
            closeups.glance(engine, engine.recorded, glance)
        else:
            closeups.refresh(engine, running=running)

    # --- pictures

    def _without_run(self) -> Snapshot:
        run = self._run
        return Snapshot(
            self._serial, run.mode, run.spec, run.opened, stats=run.stats,
            breakpoints=run.breakpoints.picture(None), moves=self.moves,
            beside=self._beside.picture, notice=run.notice,
        )  # fmt: skip

    def _stale(self) -> Snapshot:
        """What was last seen, of a device that is lost since."""
        run = self._run
        return replace(
            self.last,
            serial=self._serial,
            mode=run.mode,
            looking=False,
            moves=self.moves,
            stats=run.stats,
            comparing=run.worked_out.comparing,
            breakpoints=run.breakpoints.picture(self.last.plan),
            stale=True,
            recording=run.keeping.recording_picture(),
            beside=self._beside.picture,
            notice=run.notice,
        )

    def _picture(self, engine: Engine) -> Snapshot:
        """The step on show."""
        picture = self._device_picture(engine)
        if engine.recorded is not None:
            picture = replace(
                picture, recorded=engine.recorded.picture, last_step=engine.recorded.steps.stop - 1
            )
        if self._run.travel is not None:
            picture = self._run.travel.pictured(picture)
        if engine.recorded is not None and picture.record is not None:
            step = picture.record.step
            if not engine.course.is_own(step):
                picture = replace(picture, rank_steps=engine.recorded.rank_steps(step))
        return picture

    def _device_picture(self, engine: Engine) -> Snapshot:
        """Where the device stands."""
        run, stepper = self._run, engine.stepper
        running = run.mode == "running"
        return Snapshot(
            serial=self._serial,
            mode=run.mode,
            source=engine.source.name,
            run=run.opened,
            description=engine.source.description,
            plan=stepper.plan,
            cursor=stepper.cursor,
            hyper=engine.hyper,
            step_hyper=engine.step_hyper if stepper.cursor.step else engine.course.hyper_at(1),
            schedule=str(engine.schedule),
            record=engine.record,
            dispatch_times=tuple(engine.dispatch_times),
            uniforms=engine.uniforms(),
            history=engine.history(),
            plotted=self._beside.plotting.picture(
                None if engine.course.as_recorded else engine.course.own_from, running=running
            ),
            marks=_kept(engine.all_marks(), self.last.marks),
            looking=self.owes,
            moves=self.moves,
            map=run.viewer.map,
            values=run.viewer.values,
            histograms=run.viewer.histograms,
            closeup=run.viewer.closeups.picture,
            eight_bit=engine.eight_bit.picture(stepper),
            decay=run.race.decay,
            stats=run.stats,
            counted=engine.counted.with_totals() if engine.counted else None,
            choices=run.choices.of(stepper.plan),
            findings=engine.all_findings(),
            breakpoints=run.breakpoints.picture(stepper.plan),
            stop=run.breakpoints.stop,
            undo=stepper.undo_info,
            device=stepper.device,
            memory_bytes=stepper.memory_bytes,
            memory=self._memory.of(stepper),
            steps_per_second=run.pace.rate if running and not run.playing else None,
            copy_gbps=run.worked_out.copy_gbps(stepper.device),
            comparing=run.worked_out.comparing,
            comparison=run.worked_out.comparison,
            weighing=run.worked_out.policies.weighing,
            policies=run.worked_out.policies.latest,
            shaders=run.shaders.picture,
            searching=run.to.picture,
            heading=run.heading,
            sought=run.to.found,
            last_times=tuple(engine.last_times),
            last_step=engine.source.last_step,
            recording=run.keeping.recording_picture(),
            beside=self._beside.picture,
            bookmarks=_kept(run.keeping.bookmark_marks(), self.last.bookmarks),
            race=run.race.picture,
            notice=run.notice,
        )


def _kept(now: tuple[Mark, ...], before: tuple[Mark, ...]) -> tuple[Mark, ...]:
    """The object of the last snapshot where it holds the same: views look at what is another one."""
    return before if now == before else now
