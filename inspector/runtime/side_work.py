"""What is worked out beside the run that is open, on its thread: forms compared, steps verified, values looked for."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Protocol

from inspector.errors import OutOfMemoryError, UsageError
from inspector.progress import EndedError
from inspector.runtime import commands as c
from inspector.runtime.beside import WhatIfProgress
from inspector.runtime.companions import Companions
from inspector.runtime.current_run import CurrentRun
from inspector.runtime.engine import Engine
from inspector.runtime.mailbox import Mailbox
from inspector.runtime.moving import Moving
from inspector.runtime.parts import OpenRun
from inspector.runtime.publishing import Publisher
from inspector.runtime.reporting import save_report
from inspector.runtime.snapshots import Comparing, Mode
from inspector.runtime.value_finding import Found, Working, find_in_capture, find_on_device, save_values
from inspector.runtime.verifying import Verifying
from inspector.runtime.what_if import check_what_if, run_what_if
from inspector.sources.base import Source


class LookUp(Protocol):
    """Called between two parts of what takes long: tells how far it is, and raises EndedError where the run is in no
    mode of `modes` any more or something else is to be done."""

    def __call__(self, modes: tuple[Mode, ...] = ("paused",)) -> None: ...


class SideWork:
    """One thing at a time, each ended by the next command, which `mail` tells. What comes of it is `run.worked_out`."""

    def __init__(
        self,
        opener: OpenRun,
        run: CurrentRun,
        moving: Moving,
        beside: Companions,
        mail: Mailbox,
        publisher: Publisher,
        look_up: LookUp,
    ) -> None:
        self._opener = opener
        self._run = run
        self._moving = moving
        self._beside = beside
        self._mail = mail
        self._publisher = publisher
        self._look_up = look_up
        self._verifying = Verifying()

    def opened(self, source: Source) -> None:
        """Another source is open."""
        self._verifying.opened(source)
        self._beside.verify = self._verifying.picture

    def close(self) -> None:
        """Give back what it holds on a device."""
        self._verifying.close()

    # --- what kernels cost

    def measure_copy(self, engine: Engine) -> None:
        """Measure the bandwidth that a plain copy reaches."""
        try:
            self._run.worked_out.copy = (engine.stepper.device, engine.stepper.copy_gbps())
        finally:
            # The pause is no part of the run's speed.
            self._run.pace.restart()

    def compare(self, engine: Engine, asked: c.CompareVariants) -> None:
        """Measure forms of the step on steppers of their own; the run stays as it is."""
        run, device = self._run, engine.stepper.device
        if run.mode != "paused":
            run.say("info", "Variants are compared while the run stands still: pause it first.")
            return
        run.worked_out.comparing = Comparing()
        self._publisher.publish()
        try:
            made = self._opener.compare(
                engine.source,
                engine.stepper,
                samples=asked.samples,
                seconds=asked.seconds,
                copy_gbps=run.worked_out.copy_gbps(device),
                progress=self._compared,
            )
        except EndedError:
            if run.mode == "paused" and not isinstance(self._mail.first, (c.CancelCompare, c.Shutdown)):
                run.say("info", "The comparison of variants ended early, for what was asked for next.")
        except OutOfMemoryError as error:
            raise OutOfMemoryError(
                f"The device has no memory for a second copy of the model beside the run: {error} "
                "Start with a smaller --undo-mb, or compare with 'inspector bench --all'."
            ) from error
        else:
            run.worked_out.comparison = made
            run.worked_out.copy = (device, made.reports[0].copy_gbps)
        finally:
            run.worked_out.comparing = None

    def _compared(self, done: int, of: int) -> None:
        self._run.worked_out.comparing = Comparing(done, of)
        self._look_up()

    # --- the step on show

    def weigh(self, engine: Engine, asked: c.WeighPolicies) -> None:
        """Work policies out on the step asked for, once the run stands at its start."""
        run = self._run
        run.pause()
        travel = run.on_the_way
        if travel.recorded is None and asked.step > engine.stepper.cursor.step:
            raise UsageError(f"Step {asked.step:,} has not run yet: there is nothing to set side by side.")
        if not run.worked_out.policies.stands_at(asked.step, engine, travel.glance):
            self._moving.seek(engine, asked.step, 0)
            if travel.busy:
                travel.after.append(asked)
                return
            if travel.glance is not None and travel.glance.missing:
                raise UsageError(travel.glance.missing)
        try:
            run.worked_out.policies.weigh(engine, asked, self._look_up)
        except EndedError:
            run.say("info", f"The policies for step {asked.step:,} were not worked out to the end.")

    def find(self, engine: Engine, asked: c.FindValue) -> None:
        """Look for a value where the run stands, or in what was captured of the step on show."""
        closeups, glance = self._run.viewer.closeups, self._run.on_the_way.glance
        progress = partial(self._worked, f"Looking for {asked.query.text} in {asked.lane}")
        try:
            if glance is not None and engine.recorded is not None:
                layout = engine.stepper.layout
                closeups.found = find_in_capture(engine.recorded, glance.step, layout, asked, progress)
            else:
                closeups.found = find_on_device(engine.stepper, asked, progress)
        except EndedError:
            closeups.found = Found(asked, engine.stepper.cursor.step, ended=True)
        except UsageError as error:
            closeups.found = None
            self._run.say("warning", str(error))
        finally:
            closeups.working = None

    def save_values(self, engine: Engine, asked: c.SaveValues) -> None:
        """Write values of a param to a file."""
        run = self._run
        try:
            rows = save_values(engine.stepper, asked, partial(self._worked, f"Writing {asked.path}"))
        except EndedError:
            run.say("info", f"The values were not written to the end, and {asked.path} is as it was.")
        except UsageError as error:
            # The run goes on.
            run.say("error", str(error))
        else:
            run.say("info", f"Wrote {rows:,} rows of {asked.param} to {asked.path}.")
        finally:
            run.viewer.closeups.working = None

    def _worked(self, doing: str, done: int, of: int) -> None:
        self._run.viewer.closeups.working = Working(doing, done, of)
        self._look_up(("paused", "running"))

    # --- the whole run

    def save_report(self, engine: Engine, path: str) -> None:
        """Write the story of the run to a file."""
        try:
            save_report(engine, Path(path), self._run.worked_out.policies.tables)
        except UsageError as error:
            # The run goes on.
            self._run.say("error", str(error))
        else:
            self._run.say("info", f"Wrote the report {path}.")

    def what_if(self, engine: Engine, asked: c.WhatIf) -> None:
        """Run the open recording again under the settings of now, then show both under the run, which stays."""
        run = self._run
        if run.mode != "paused":
            run.say("info", "A what-if runs while the run stands still: pause it first.")
            return
        path = Path(asked.path)
        source, changes = check_what_if(engine, path, asked.policy)
        try:
            steps = run_what_if(
                self._opener, source, changes, path, asked.policy, partial(self._what_if_ran, path)
            )
        except EndedError:
            run.say("info", f"The what-if ended early; {path} holds the steps that had run until then.")
        else:
            self._beside.show_both(Path(source.name), path)
            run.say("info", f"{steps:,} steps ran again with {changes}, and are recorded as {path}.")
        finally:
            self._beside.what_if = None

    def _what_if_ran(self, path: Path, done: int, of: int) -> None:
        begins = self._beside.what_if is None
        self._beside.what_if = WhatIfProgress(str(path), done, of)
        if begins:
            # However quick it is, that it runs is seen.
            self._publisher.publish()
        self._look_up()

    def verify(self, engine: Engine, asked: c.VerifyStep | c.VerifyAll) -> None:
        """Hold the open recording of another program against the kernels here; the run stays as it is."""
        if self._run.mode != "paused":
            self._run.say(
                "info", "Steps are held against the kernels here while the run stands still: pause it first."
            )
            return
        maker = self._opener.replay_maker()
        try:
            if isinstance(asked, c.VerifyStep):
                self._verifying.one(engine.source, maker, asked.step, self._verified)
            else:
                self._verifying.all(engine.source, maker, self._verified)
        except EndedError:
            # What was asked for next says why.
            pass
        finally:
            self._beside.verify = self._verifying.picture

    def _verified(self) -> None:
        self._beside.verify = self._verifying.picture
        self._look_up()
