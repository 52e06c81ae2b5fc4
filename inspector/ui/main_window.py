"""The window: toolbar, panels and status bar around the views, which know nothing of each other."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from PySide6.QtCore import QEvent, QSettings, QSize, Qt, Signal
from PySide6.QtGui import QCloseEvent, QKeySequence, QPaintEvent, QShortcut, QShowEvent
from PySide6.QtWidgets import QMainWindow, QToolBar, QWidget

from inspector.runtime.commands import (
    Command,
    Follow,
    OpenSource,
    Play,
    RecoverDevice,
    Run,
    SetBreakpoint,
    StepDispatch,
    StepIteration,
)
from inspector.runtime.hits import Hit
from inspector.runtime.snapshots import Snapshot
from inspector.ui import docks as panels
from inspector.ui import kept_breakpoints, tab_order, theme
from inspector.ui.actions import Actions
from inspector.ui.arrangements import STEP
from inspector.ui.asking import Asking
from inspector.ui.banner import Banner
from inspector.ui.bus import Bus
from inspector.ui.deferred import real, when_made
from inspector.ui.findings_view import FindingsView
from inspector.ui.focus_ring import FocusRing
from inspector.ui.form_menu import FormMenu
from inspector.ui.kept_drafts import KeptDrafts
from inspector.ui.menus import Menus
from inspector.ui.opening import Opening
from inspector.ui.pacer import Pacer
from inspector.ui.paint_turn import paint_turn
from inspector.ui.pipeline_view import PipelineView
from inspector.ui.preferences import Preferences
from inspector.ui.start_view import StartView, always_listed
from inspector.ui.status import StatusLine
from inspector.ui.timeline_view import TimelineView
from inspector.ui.toolbar import MainToolBar
from inspector.ui.transport import Transport
from inspector.ui.values_view import ValuesView
from inspector.ui.view import View
from inspector.ui.ways import Ways

DEFAULT_SIZE = QSize(1440, 900)
TITLE = "Optimizer inspector"
GOES_ON = (StepDispatch, StepIteration, Run, Play, OpenSource, Follow)


class MainWindow(QMainWindow):
    """Passes each snapshot to every view, their commands to the bus, and a selection to all of them."""

    painted_first = Signal()

    def __init__(
        self,
        bus: Bus,
        views: Mapping[str, View],
        *,
        settings: QSettings | None = None,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.setObjectName("main_window")
        self.setWindowTitle(TITLE)
        self.setDockNestingEnabled(True)
        self.resize(DEFAULT_SIZE.boundedTo(self.screen().availableSize()))
        self._bus = bus
        self._settings = settings
        self._painted = False
        self._placed = False
        self._front = ""
        self.views = dict(views)
        self._pacer = Pacer(self.views.values(), self, working=bus.working)
        self.snapshot: Snapshot | None = None
        self._landed: Hit | None = None
        self.actions_by_name = Actions(self, self.send)
        self.form_menu = FormMenu(self)
        self.toolbar = MainToolBar(self.actions_by_name, self.form_menu, self)
        self.transport = Transport(self.actions_by_name, self)
        self.opening = Opening(self, lambda: self._settings, always_listed())
        self.banner = Banner(self)
        self.status = StatusLine(self)
        self.docks = panels.make_docks(self, self.views)
        self.asking = Asking(self, self.send, bus.snapshot_arrived)
        self.ways = Ways(
            self, self.actions_by_name, self.docks, self.views, self.send, lambda: self._settings
        )
        self.menus = Menus(self, self.actions_by_name, self.form_menu, self.ways.layouts)
        self.preferences = Preferences(
            self,
            lambda: self._settings,
            self.actions_by_name,
            self.ways.navigator,
            self.views.get("settings"),
        )
        KeptDrafts(self, lambda: self._settings, self.views.get("shaders"))
        self._focus_ring = FocusRing(self)
        self._assemble()
        self._connect()
        # Else Qt gives them to the first that takes any, the source in the toolbar, which they would change.
        self._give_keys_to_map()
        if settings is not None:
            for each in kept_breakpoints.kept(settings):
                self.send(SetBreakpoint(each.condition, each.enabled, each.stopping))
            panels.load_views(settings, self.views)

    def send(self, command: Command) -> None:
        """Send a command of a person to the worker; it can be undone and gone back from."""
        self.ways.sent(command)
        self.status.working.sent(command)
        start, plots = self.views.get("start"), self.views.get("plots")
        if isinstance(command, GOES_ON) and start is not None and start.isVisible() and plots is not None:
            # Who opens a run or sets it going wants to see it.
            self.show_view("plots")
        self._bus.send(command)

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show this moment everywhere."""
        self.snapshot = snapshot
        self.actions_by_name.show_snapshot(snapshot)
        self.toolbar.show_snapshot(snapshot)
        self.transport.show_snapshot(snapshot)
        self.form_menu.show_snapshot(snapshot)
        self.banner.show_snapshot(snapshot)
        self.status.show_snapshot(snapshot)
        self.opening.show_snapshot(snapshot)
        self.asking.show_snapshot(snapshot)
        self.ways.show_snapshot(snapshot)
        self._show_titles(snapshot)
        self._pacer.show_snapshot(snapshot)
        self._land(snapshot.stop)

    @property
    def at_rest(self) -> bool:
        """True once every view shows the newest moment."""
        return self._pacer.at_rest

    def _land(self, stop: Hit | None) -> None:
        """Select what a breakpoint stopped at, once."""
        landed, self._landed = self._landed, stop
        if stop is None or stop is landed or stop.param is None:
            return
        # What is selected has to be there.
        self._pacer.finish()
        self.ways.navigator.landed(stop.param, stop.index or 0)
        for view in self.views.values():
            view.select_element(stop.param, stop.index or 0)

    def select_param(self, name: str) -> None:
        """Select a param in every view; "" for none."""
        self.ways.navigator.selected(name)
        for view in self.views.values():
            view.select_param(name)

    def _edit_kernel(self) -> None:
        """Go to the WGSL of the dispatch that is selected."""
        from inspector.ui.shaders_view import ShadersView

        pipeline, shaders = self.views.get("pipeline"), real(self.views.get("shaders"), ShadersView)
        if isinstance(pipeline, PipelineView) and shaders is not None:
            self.ways.go_to_view("shaders")
            if pipeline.kernel:
                shaders.show_kernel(pipeline.kernel)

    def _take_kernels(self, files: list[Path]) -> None:
        """Show WGSL files where kernels are edited."""
        from inspector.ui.shaders_view import ShadersView

        shaders = real(self.views.get("shaders"), ShadersView)
        if shaders is not None:
            self.ways.go_to_view("shaders")
            shaders.take_files(files)

    def _find_value(self, text: str | bool = "") -> None:
        """Go to the values with what to look for: to be typed, or `text` in all params."""
        values = self.views.get("values")
        if isinstance(values, ValuesView):
            self.ways.go_to("values", "")
            values.open_find()
            if isinstance(text, str) and text:
                values.find_everywhere(text)

    def select_element(self, name: str, index: int) -> None:
        """Select an element of a param in every view, by its flat index."""
        self.ways.navigator.selected(name, index)
        for view in self.views.values():
            view.select_element(name, index)

    def show_view(self, name: str) -> None:
        """Bring a view to the front of its panel, and that before others in its place."""
        panels.show_tab(self.views[name])
        panel = next((each.name for each in panels.PANELS if name in each.views), "")
        if panel in self.docks:
            self.docks[panel].raise_()

    def begin_with(self, name: str) -> None:
        """Show a view before others of its panel from the start, and give it the keys."""
        self._front = name
        self.show_view(name)
        self.views[name].setFocus()

    def tell_problem(self, text: str) -> None:
        """Show a sentence about something that went wrong in the window itself."""
        self.banner.tell("error", text)

    def restore_default_layout(self) -> None:
        """Put every panel back in its place."""
        self.ways.layouts.apply(STEP)

    def focusNextPrevChild(self, forward: bool) -> bool:
        return tab_order.go_on(self, forward=forward)

    def closeEvent(self, event: QCloseEvent) -> None:
        if self._settings is not None:
            if self.snapshot is not None:
                kept_breakpoints.keep(self._settings, self.snapshot.breakpoints)
            arrangement = self.ways.layouts.kept_text()
            self._settings = panels.save(self, self._settings, self.views, arrangement)
        event.accept()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not self._placed:
            self._placed = True
            self._bus.watch_input(self.windowHandle())
            # Sizes of docks hold only once the window has its own.
            if self._settings is not None and panels.restore(self, self._settings, self.views):
                self.ways.layouts.take_up(str(self._settings.value("window/arrangement", "")))
            else:
                # What was brought to the front before, and has the keys, stays so.
                self.ways.layouts.place(STEP)
            if self._front:
                self.show_view(self._front)
            # What was kept may be from a moment with a message.
            self._banner_bar.setVisible(bool(self.banner.text))

    def event(self, event: QEvent) -> bool:
        """Paint what is stale in it, as much as fits in a turn."""
        if event.type() != QEvent.Type.UpdateRequest:
            return super().event(event)
        with paint_turn():
            return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._painted:
            self._painted = True
            self.painted_first.emit()

    def _assemble(self) -> None:
        self.addToolBar(self.toolbar)
        self.addToolBarBreak()
        self._banner_bar = QToolBar("Messages", self)
        self._banner_bar.setObjectName("banner_bar")
        self._banner_bar.setMovable(False)
        self._banner_bar.setContextMenuPolicy(Qt.ContextMenuPolicy.PreventContextMenu)
        self._banner_bar.addWidget(self.banner)
        self.addToolBar(self._banner_bar)
        if "timeline" in self.docks:
            self.transport.crown(self.docks["timeline"])
        self.setStatusBar(self.status)
        for action in (self.toolbar.toggleViewAction(), self._banner_bar.toggleViewAction()):
            action.setEnabled(False)
        self.ways.layouts.place(STEP)
        self._banner_bar.hide()

    def _connect(self) -> None:
        acts = self.actions_by_name
        self._bus.snapshot_arrived.connect(self.show_snapshot)
        self.toolbar.command.connect(self.send)
        self.form_menu.command.connect(self.send)
        self.toolbar.open_file.connect(self._choose_file)
        self.opening.chosen.connect(lambda spec: self.send(OpenSource(spec)))
        self.opening.problem.connect(self.tell_problem)
        self.opening.kernels_chosen.connect(self._take_kernels)
        self.toolbar.step_edit.left.connect(self._give_keys_to_map)
        self.transport.command.connect(self.send)
        self.transport.left.connect(self._give_keys_to_map)
        timeline = self.views.get("timeline")
        if isinstance(timeline, TimelineView):
            timeline.loop_wanted.connect(self.transport.set_loop)
            self.transport.loop_changed.connect(timeline.show_loop)
        self._play_by_space()
        self.status.working.ended.connect(self.send)
        self.banner.recover.connect(lambda: self.send(RecoverDevice()))
        self.banner.opened.connect(self._banner_bar.setVisible)
        acts["dismiss"].triggered.connect(self.banner.dismiss)
        acts["open"].triggered.connect(self._choose_file)
        acts["open_recording"].triggered.connect(self.opening.choose_recording)
        acts["quit"].triggered.connect(self.close)
        acts.record_wanted.connect(self.asking.ask_recording)
        acts["breakpoint"].triggered.connect(lambda: self.ways.go_to("findings", "breakpoints"))
        acts["run_back"].triggered.connect(self.asking.ask_run_back)
        pipeline = self.views.get("pipeline")
        if isinstance(pipeline, PipelineView):
            acts["run_to_dispatch"].triggered.connect(pipeline.run_to_here)
        acts["edit_kernel"].triggered.connect(self._edit_kernel)
        acts["overlay"].triggered.connect(self.asking.ask_overlay)
        acts["find_value"].triggered.connect(self._find_value)
        acts["next_nonfinite"].triggered.connect(lambda: self._find_value("nonfinite"))
        acts["save_report"].triggered.connect(self.asking.ask_report)
        acts["what_if"].triggered.connect(self.asking.ask_what_if)
        acts["guide"].triggered.connect(self.asking.show_guide)
        acts["keys"].triggered.connect(lambda: self.asking.show_keys(self.ways.keys()))
        acts["restore_layout"].triggered.connect(self.restore_default_layout)
        self.menus.panel_wanted.connect(self.ways.go_to)
        self.ways.param_wanted.connect(self.select_param)
        self.ways.element_wanted.connect(self.select_element)
        self.ways.layouts.told.connect(self.tell_problem)
        self.preferences.told.connect(lambda text: self.banner.tell("info", text))
        self.ways.recent_sources = self.opening.recent
        theme.changes().changed.connect(acts.refresh_icons)
        for view in self.views.values():
            view.command.connect(self.send)
            view.param_selected.connect(self.select_param)
            view.element_selected.connect(self.select_element)
            view.range_wanted.connect(self._show_range)
            view.moved.connect(partial(self._show_range, moved=view))
            view.condition_wanted.connect(self._offer_breakpoint)
        when_made(self.views.get("findings"), self._join_findings)
        when_made(self.views.get("start"), self._join_start)

    def _join_findings(self, view: View) -> None:
        if isinstance(view, FindingsView) and "policies" in self.views:
            view.policies_wanted.connect(lambda: self.show_view("policies"))

    def _join_start(self, view: View) -> None:
        if isinstance(view, StartView):
            view.left.connect(self._leave_start)
            view.guide_wanted.connect(self.asking.show_guide)
            view.show_recent(self.opening.recent())
            self.opening.recent_changed.connect(view.show_recent)

    def _show_titles(self, snapshot: Snapshot) -> None:
        title = f"{snapshot.source} — {TITLE}" if snapshot.source else TITLE
        if self.windowTitle() != title:
            self.setWindowTitle(title)
        if "findings" in self.docks:
            count = len(snapshot.findings)
            text = f"Findings ({count:,})" if count else "Findings"
            if self.docks["findings"].windowTitle() != text:
                self.docks["findings"].setWindowTitle(text)

    def _play_by_space(self) -> None:
        # Only where a space means nothing else: it also presses buttons and ticks boxes.
        for name in ("timeline", "map", "plots"):
            if name in self.views:
                view = self.views[name]
                key = QShortcut(QKeySequence(Qt.Key.Key_Space), view.focusProxy() or view)
                key.setContext(Qt.ShortcutContext.WidgetShortcut)
                key.activated.connect(self.actions_by_name["play"].trigger)

    def _give_keys_to_map(self) -> None:
        target = self.views.get("map", self)
        target.setFocus(Qt.FocusReason.OtherFocusReason)

    def _choose_file(self) -> None:
        # The combo shows what runs, not the entry that opened this dialog.
        if self.snapshot is not None:
            self.toolbar.show_snapshot(self.snapshot)
        self.opening.choose_file()

    def _leave_start(self) -> None:
        """What was opened is seen, and has the keys."""
        self.show_view("plots")
        self._give_keys_to_map()

    def _show_range(self, start: float, stop: float, moved: View | None = None) -> None:
        for view in self.views.values():
            if view is not moved:
                view.show_range(start, stop)

    def _offer_breakpoint(self, condition: str) -> None:
        """A breakpoint made of what was seen, to be looked over before it is added."""
        from inspector.ui.breakpoints_view import BreakpointsView

        view = real(self.views.get("breakpoints"), BreakpointsView)
        if view is not None:
            self.ways.go_to("findings", "breakpoints")
            view.offer(condition)
