"""Everything a person can do from the window, as actions with a key, a tooltip and a reason when disabled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QMainWindow

from inspector.diagnosis.watchpoints import Condition
from inspector.runtime.commands import (
    CancelSeek,
    Command,
    DropOverlay,
    Follow,
    OpenSource,
    Pause,
    RecoverDevice,
    Run,
    RunToFinding,
    SetBreakpoint,
    SetStats,
    StepDispatch,
    StepIteration,
    StopRecording,
    UndoDispatch,
    UndoIteration,
)
from inspector.runtime.snapshots import Snapshot
from inspector.statistics import StatsLevel
from inspector.ui.arrangements import COMPARE, DIAGNOSE, PROFILE, STEP
from inspector.ui.going_on import going_on
from inspector.ui.icons import IconName, icon


@dataclass(frozen=True, slots=True)
class _Spec:
    name: str
    text: str
    keys: tuple[str, ...]
    help: str
    icon: IconName | None = None
    command: Command | None = None


STATS_HELP: dict[StatsLevel, str] = {
    "off": "Count nothing: non-finite gradients read 0 and are not found",
    "light": "Count the gradients",
    "full": "Count every param and its update as well, in one more pass over w, g, m and v",
}

SPECS = (
    _Spec("undo_iteration", "Back one iteration", ("Shift+F11",),
          "Go back to the start of this step, or of the one before", "undo_iteration", UndoIteration()),
    _Spec("undo_dispatch", "Back one dispatch", ("Shift+F10",),
          "Take the last dispatch back", "undo_dispatch", UndoDispatch()),
    _Spec("step_dispatch", "Step dispatch", ("F10",),
          "Run one dispatch", "step_dispatch", StepDispatch()),
    _Spec("step_iteration", "Step iteration", ("F11",),
          "Run to the end of the step, or the whole next one", "step_iteration", StepIteration()),
    _Spec("run", "Run", ("F5",), "Run until paused; F5 again pauses", "run"),
    _Spec("pause", "Pause", ("F6", "Shift+F5"),
          "Stop at the end of the running step, or of the running dispatch where steps take long", "pause", Pause()),
    _Spec("run_to_dispatch", "Run to the dispatch", ("Ctrl+F10",),
          "Run until the step stands before the dispatch selected in the pipeline, in this step or the next"),
    _Spec("run_to_finding", "Run to the next finding", ("Ctrl+F5",),
          "Run until a warning or an error is found; in a recording go to the next one", None, RunToFinding()),
    _Spec("run_back", "Run back to before…", ("Shift+F9",),
          "Go back to the end of the last step before a condition held"),
    _Spec("go_to_step", "Go to step…", ("Ctrl+G",), "Type a step to go to, or a dispatch of it as in 1200:2"),
    _Spec("play", "Play", ("P",), "Go through the steps at the chosen speed; P again pauses", "play"),
    _Spec("slower", "Slower", ("Ctrl+[",), "Play at the next lower speed"),
    _Spec("faster", "Faster", ("Ctrl+]",), "Play at the next higher speed"),
    _Spec("loop", "Loop over the range", ("Shift+P",), "Play the steps of the range again and again, or on past it",
          "loop"),
    _Spec("loop_start", "Begin the range here", ("I",), "Make this step the first of the range to loop over"),
    _Spec("loop_end", "End the range here", ("O",), "Make this step the last of the range to loop over"),
    _Spec("loop_clear", "Remove the range", ("Shift+I",), "Loop over nothing"),
    _Spec("stay", "Stop rebuilding", ("Esc",),
          "Stay at what was recorded of the step, without its buffers; or end the search for a step", None,
          CancelSeek()),
    _Spec("end_work", "End what goes on", ("Ctrl+.",),
          "End what keeps the worker, whatever it is; what was there before stays"),
    _Spec("bookmark", "Bookmark…", ("Ctrl+B",), "Put a bookmark with a note at this step, or change its note",
          "bookmark"),
    _Spec("follow", "Follow the recording", ("F",),
          "Show each step of a recording in progress as it is written, or stay at the one on show"),
    _Spec("breakpoint", "Add breakpoint…", ("F9",),
          "Type a condition that stops the run in the step in which it holds"),
    _Spec("break_nonfinite", "Break on non-finite gradients", ("Ctrl+F9",),
          "Stop before the first dispatch of a step whose gradients hold NaN or Inf: nonfinite > 0"),
    _Spec("stats_off", "Statistics off", ("Ctrl+1",), f"{STATS_HELP['off']}, from the next step on", None,
          SetStats("off")),
    _Spec("stats_light", "Statistics light", ("Ctrl+2",), f"{STATS_HELP['light']}, from the next step on", None,
          SetStats("light")),
    _Spec("stats_full", "Statistics full", ("Ctrl+3",), f"{STATS_HELP['full']}, from the next step on", None,
          SetStats("full")),
    _Spec("recover", "Recover the device", (), "Make a new device and go on from the last state kept", None,
          RecoverDevice()),
    _Spec("open", "Open file…", ("Ctrl+O",),
          "Open a state file with w/… and g/…, a packed recording, or kernels (.wgsl)"),
    _Spec("open_recording", "Open recording…", ("Ctrl+Shift+O",), "Open a recording, the folder NAME.session"),
    _Spec("restart", "Restart the source", ("Ctrl+R",),
          "Open the source again and begin at its start; what this run has done is dropped"),
    _Spec("record", "Record…", ("F8",), "Record the run to a session, or end the recording that goes on", "record"),
    _Spec("save_report", "Save report…", ("Ctrl+Shift+S",),
          "Write the story of the run to one HTML file: findings by cause, plots and settings"),
    _Spec("overlay", "Overlay a recording…", ("Ctrl+U",), "Lay a recording under the run, in every plot"),
    _Spec("drop_overlays", "Remove overlays", ("Ctrl+Shift+U",), "Take every recording from under the run", None,
          DropOverlay()),
    _Spec("what_if", "What if…", ("F7",),
          "Run the open recording again under the settings and the form of now, as a session of its own"),
    _Spec("edit_kernel", "Edit the kernel", ("Ctrl+Shift+T",),
          "Go to the WGSL of the dispatch selected in the pipeline, to read or to edit"),
    _Spec("find_value", "Find a value…", ("Ctrl+F",),
          "Look for a value in the param that is shown, or in all: a number, a range, NaN, what changed"),
    _Spec("next_nonfinite", "Next non-finite value", (),
          "Go to the next element of any param whose value is NaN or infinite"),
    _Spec("quit", "Quit", ("Ctrl+Q",), "Close the window and end the run"),
    _Spec("dismiss", "Dismiss the message", ("Ctrl+Backspace",), "Close the message below the toolbar"),
    _Spec("palette", "Command palette…", ("Ctrl+Shift+P",), "Find anything that can be done by a few letters"),
    _Spec("go_to_param", "Go to param…", ("Ctrl+P",), "Find a param by a few letters of its name"),
    _Spec("go_to_offset", "Go to offset…", ("Ctrl+L",),
          "Go to an element or a byte of the mega-buffers, be it in a gap"),
    _Spec("back", "Back", ("Alt+Left",), "Go to the step, element or panel where you were before"),
    _Spec("forward", "Forward", ("Alt+Right",), "Go to where you were before going back"),
    _Spec("undo", "Undo", ("Ctrl+Z",), "Take back the last change of settings, breakpoints, bookmarks or panels"),
    _Spec("redo", "Redo", ("Ctrl+Shift+Z",), "Make the change again that was taken back"),
    _Spec("layout_step", "Step", ("Ctrl+Alt+1",), STEP.help),
    _Spec("layout_profile", "Profile", ("Ctrl+Alt+2",), PROFILE.help),
    _Spec("layout_diagnose", "Diagnose", ("Ctrl+Alt+3",), DIAGNOSE.help),
    _Spec("layout_compare", "Compare", ("Ctrl+Alt+4",), COMPARE.help),
    _Spec("save_layout", "Save the layout…", ("Ctrl+Alt+S",), "Keep the panels as they are now under a name"),
    _Spec("rename_layout", "Rename a layout…", (), "Call a saved layout something else"),
    _Spec("delete_layout", "Delete a layout…", (), "Forget a saved layout"),
    _Spec("theme_system", "As the system", (), "Light or dark, as the system is"),
    _Spec("theme_light", "Light", (), "Dark on light, whatever the system is"),
    _Spec("theme_dark", "Dark", (), "Light on dark, whatever the system is"),
    _Spec("text_larger", "Larger text", ("Ctrl++", "Ctrl+="),
          "All text by a step larger, from the next start of the window"),
    _Spec("text_smaller", "Smaller text", ("Ctrl+-",),
          "All text by a step smaller, from the next start of the window"),
    _Spec("text_reset", "Text as large as the system's", ("Ctrl+0",),
          "All text at 100 %, from the next start of the window"),
    _Spec("guide", "Guide", ("Shift+F1",), "Five tasks step by step, in a window beside this one"),
    _Spec("keys", "Keys", ("F1", "?"), "All keys at a glance"),
    _Spec("restore_layout", "Restore default layout", ("Ctrl+Shift+R",), "Put every panel back in its place"),
)  # fmt: skip
NONFINITE = Condition("nonfinite", ">", 0.0)
STEPPING = ("step_dispatch", "step_iteration")
NEED_A_RUN = (
    *(spec.name for spec in SPECS if spec.icon),
    "run_to_dispatch",
    "edit_kernel",
    "run_to_finding",
    "run_back",
    "go_to_step",
    "loop_start",
    "loop_end",
    "stay",
    "follow",
)
NEED_PARAMS = ("go_to_param", "go_to_offset")
NO_RANGE = "no range is set: I and O, or Shift and a drag on the timeline, set one"


class Actions(QObject):
    """The actions by name, on the window so that their keys work wherever the focus is."""

    record_wanted = Signal()

    def __init__(self, window: QMainWindow, send: Callable[[Command], None]) -> None:
        super().__init__(window)
        self._send = send
        self._by_name: dict[str, QAction] = {}
        self._running = self._recording = self._following = False
        self._source = ""
        self._snapshot: Snapshot | None = None
        self._loop: tuple[int, int] | None = None
        self._looping = False
        self._why_not: dict[str, str] = {}
        """Reasons that stand until others are given, whatever the run does."""
        for spec in SPECS:
            action = QAction(spec.text, window)
            action.setObjectName(spec.name)
            action.setShortcuts([QKeySequence(key) for key in spec.keys])
            action.setShortcutContext(Qt.ShortcutContext.WindowShortcut)
            action.setAutoRepeat(
                spec.name in (*STEPPING, "undo_dispatch", "undo_iteration", "slower", "faster")
            )
            window.addAction(action)
            self._by_name[spec.name] = action
            if spec.command is not None:
                action.triggered.connect(lambda _checked=False, command=spec.command: send(command))
        themes = QActionGroup(self)
        for name in ("theme_system", "theme_light", "theme_dark"):
            self[name].setCheckable(True)
            themes.addAction(self[name])
        levels = QActionGroup(self)
        for level in STATS_HELP:
            self[f"stats_{level}"].setCheckable(True)
            levels.addAction(self[f"stats_{level}"])
        self["run"].triggered.connect(self._toggle_run)
        self["end_work"].triggered.connect(self._end_work)
        self["break_nonfinite"].setCheckable(True)
        self["break_nonfinite"].triggered.connect(lambda wanted: send(SetBreakpoint(NONFINITE, wanted)))
        self["record"].setCheckable(True)
        self["record"].triggered.connect(self._toggle_recording)
        self["restart"].triggered.connect(lambda: send(OpenSource(self._source)))
        self["loop"].setCheckable(True)
        self["follow"].setCheckable(True)
        self["follow"].triggered.connect(self._toggle_following)
        self.refresh_icons()
        self._now = dict.fromkeys(
            (*NEED_A_RUN, *NEED_PARAMS, "restart", "what_if", "save_report", "drop_overlays"), "starting"
        )
        self._allow(self._now)

    def __getitem__(self, name: str) -> QAction:
        return self._by_name[name]

    def refresh_icons(self) -> None:
        """Draw the icons anew in the colours of the theme."""
        for spec in SPECS:
            if spec.icon:
                self[spec.name].setIcon(icon(spec.icon))

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Enable what can work now."""
        self._snapshot = snapshot
        self._running = snapshot.mode == "running"
        self._source = snapshot.source
        self["run"].setText("Pause" if self._running else "Run")
        self["play"].setText("Pause" if snapshot.playing is not None else "Play")
        self["stay"].setText("Stop rebuilding" if snapshot.searching is None else "Stop looking")
        self._following = snapshot.following
        self["follow"].setChecked(self._following)
        self._recording = snapshot.recording is not None
        self["record"].setText("Stop recording" if self._recording else "Record…")
        self["record"].setChecked(self._recording)
        self[f"stats_{snapshot.stats}"].setChecked(True)
        on = any(b.enabled and b.condition == NONFINITE for b in snapshot.breakpoints)
        self["break_nonfinite"].setChecked(on)
        self._now = reasons(snapshot, self._loop, looping=self._looping)
        self._allow(self._now)

    def show_loop(self, loop: tuple[int, int] | None, looping: bool) -> None:
        """Enable what can work with this range of steps to loop over, or with none."""
        self._loop, self._looping = loop, looping
        self["loop"].setChecked(looping)
        if self._snapshot is not None:
            self._now = reasons(self._snapshot, loop, looping=looping)
            self._allow(self._now)

    def disable(self, why_not: Mapping[str, str]) -> None:
        """Why these cannot work until something else is said of them; "" for one that can."""
        self._why_not.update(why_not)
        self._allow(self._now)

    def _end_work(self) -> None:
        now = going_on(self._snapshot) if self._snapshot is not None else None
        if now is not None and now.end is not None:
            self._send(now.end)

    def _toggle_run(self) -> None:
        self._send(Pause() if self._running else Run())

    def _toggle_following(self) -> None:
        # It is checked while a recording is followed, whatever was just clicked.
        self["follow"].setChecked(self._following)
        self._send(Follow(not self._following))

    def _toggle_recording(self) -> None:
        # It is checked while a recording goes on, whatever was just clicked.
        self["record"].setChecked(self._recording)
        if self._recording:
            self._send(StopRecording())
        else:
            self.record_wanted.emit()

    def _allow(self, why_not: dict[str, str]) -> None:
        for spec in SPECS:
            reason = why_not.get(spec.name, "") or self._why_not.get(spec.name, "")
            keys = f" ({' or '.join(spec.keys)})" if spec.keys else ""
            tip = f"{spec.help}{keys}" + (f"\nNot now: {reason}" if reason else "")
            action = self[spec.name]
            if action.isEnabled() == bool(reason):
                action.setEnabled(not reason)
            if action.toolTip() != tip:
                action.setToolTip(tip)


def reasons(
    snapshot: Snapshot, loop: tuple[int, int] | None = None, *, looping: bool = False
) -> dict[str, str]:
    """Why actions cannot work at this moment, by name; an action that is not named can.

    `loop` is the range of steps to loop over, None for none; `looping` False where a run would go on past it.
    """
    why = blocked(snapshot)
    result = dict.fromkeys(NEED_A_RUN, why) if why else _stepping_reasons(snapshot, looping)
    if not why:
        result.update(_recording_reasons(snapshot))
    if snapshot.plan is None:
        result.update(dict.fromkeys(NEED_PARAMS, why or "no source is open"))
    if loop is None:
        result.update(dict.fromkeys(("loop", "loop_clear"), NO_RANGE))
    if snapshot.recording is not None:
        result.pop("record", None)
    now = going_on(snapshot)
    if now is None or now.end is None:
        result["end_work"] = "nothing goes on" if now is None else "this has to come to its end"
    if snapshot.mode != "lost":
        result["recover"] = "the device is working"
    if not snapshot.beside.overlays:
        result["drop_overlays"] = "no recording is laid under the run"
    if why:
        result["what_if"] = result["save_report"] = why
    elif snapshot.beside.recording is None:
        result["what_if"] = "no recording is open"
    if snapshot.mode == "starting" or not snapshot.source:
        result["restart"] = "the source is being opened" if snapshot.source else "no source is open"
    return result


def blocked(snapshot: Snapshot) -> str:
    """Why nothing can be done with a run at this moment; "" where there is one."""
    if snapshot.mode == "starting":
        return "the source is being opened"
    if snapshot.mode == "lost":
        return "the device is lost, recover it first"
    if snapshot.mode == "failed":
        return "the source could not be opened, choose another"
    if snapshot.mode == "closed" or snapshot.plan is None or snapshot.cursor is None:
        return "no source is open"
    return ""


def _stepping_reasons(snapshot: Snapshot, looping: bool) -> dict[str, str]:
    cursor = snapshot.cursor
    assert cursor is not None
    result: dict[str, str] = {}
    if snapshot.mode == "running":
        # Stepping and going back pause it first.
        return result
    result["pause"] = "nothing is running"
    if cursor.at_end and snapshot.last_step is not None and cursor.step >= snapshot.last_step:
        # A recording is played from its start again.
        plays = looping or snapshot.recorded is not None
        for name in (*STEPPING, "run", "run_to_dispatch", *(() if plays else ("play",))):
            result[name] = f"step {cursor.step:,} is the last of this source"
        if snapshot.recorded is None:
            result["run_to_finding"] = f"step {cursor.step:,} is the last of this source"
    if cursor.finished_steps <= _first(snapshot) and cursor.dispatch == 0:
        back = ("undo_dispatch", "undo_iteration", "run_back")
        result.update(dict.fromkeys(back, "nothing lies before the first step"))
    return result


def _first(snapshot: Snapshot) -> int:
    """The step after which the run began."""
    return snapshot.recorded.first - 1 if snapshot.recorded is not None else 0


def _recording_reasons(snapshot: Snapshot) -> dict[str, str]:
    """What a recording does not allow, and what only one that is being written or a step being rebuilt does."""
    result: dict[str, str] = {}
    glance, recorded = snapshot.glance, snapshot.recorded
    if (glance is None or glance.missing or not glance.of) and snapshot.searching is None:
        result["stay"] = "nothing is being rebuilt or looked for"
    if glance is not None and glance.missing:
        why = f"only the numbers of step {glance.step:,} are at hand. {glance.missing}"
        # Whole steps, and a run over them, are shown as recorded.
        result.update(dict.fromkeys(("step_dispatch", "run_to_dispatch", "undo_dispatch", "record"), why))
    if recorded is None:
        result["follow"] = "the source is no recording"
    elif recorded.state != "recording":
        result["follow"] = "nobody writes this recording any more"
    return result
