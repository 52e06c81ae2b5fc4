"""Going about: the palette, going to a param, an offset or a step, and back and forward through places visited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from PySide6.QtCore import QObject, Signal

from inspector.errors import UsageError
from inspector.layout import Layout
from inspector.runtime.commands import Command, Seek
from inspector.runtime.snapshots import Snapshot
from inspector.stepping import Cursor
from inspector.ui import format as fmt
from inspector.ui.command_list import Doable
from inspector.ui.fuzzy import Texts
from inspector.ui.offsets import HINT, Spot, parse_offset
from inspector.ui.palette import Answer, Palette, Row
from inspector.ui.palette_entries import ranked, with_latest
from inspector.ui.places import Place, Places, Way
from inspector.ui.view import same_run

PARAM, OFFSET, STEP = "@", "#", ":"
"""With one of these in front the palette goes to a param, an offset or a step."""
PROMPT = f"What to do; {PARAM} goes to a param, {OFFSET} to an offset, {STEP} to a step"
MOST_PARAMS = 200
NO_PARAMS = "No source is open: there are no params to go to."
STEP_HINT = "Type a step, or a dispatch of it as in 1200:2."
MAX_STEP = 2_147_483_647


class Navigator(QObject):
    """What can be done and where one can go, found in the palette; and the places that were gone to.

    `moved` says that other places can be gone to; `recent_changed` carries the names of what was done last.
    """

    moved = Signal()
    recent_changed = Signal(tuple)
    param_wanted = Signal(str)
    param_sought = Signal(str)
    """A param that was gone to by its name, once it is selected."""
    element_wanted = Signal(str, int)
    spot_wanted = Signal(int)
    """An element of the mega-buffers, be it in a gap."""
    view_wanted = Signal(str)

    def __init__(
        self, palette: Palette, send: Callable[[Command], None], doables: Callable[[], Sequence[Doable]]
    ) -> None:
        """`doables` lists what can be done at the moment."""
        super().__init__(palette.parent())
        self._palette = palette
        self._send = send
        self._doables = doables
        self._listed: Sequence[Doable] = ()
        self._snapshot: Snapshot | None = None
        self._names: tuple[Layout | None, Texts] = (None, Texts(()))
        self.recent: tuple[str, ...] = ()
        self.places = Places()
        self._returning = False

    # --- the palette

    def open_palette(self) -> None:
        """Ask what to do."""
        self._ask("")

    def ask_param(self) -> None:
        """Ask for a param by a few of its letters."""
        self._ask(PARAM)

    def ask_offset(self) -> None:
        """Ask for an offset into the mega-buffers."""
        self._ask(OFFSET)

    def _ask(self, text: str) -> None:
        # What can be done is gathered once: it does not change while somebody types.
        self._listed = list(self._doables())
        self._palette.ask(PROMPT, self.answer, text)

    def answer(self, text: str) -> Answer:
        """What the palette lists for `text`."""
        kind, typed = text[:1], text[1:].strip()
        if kind == PARAM:
            return self._params(typed)
        if kind == OFFSET:
            return self._offset(typed)
        if kind == STEP:
            return self._step(typed)
        by_name = {each.entry.name: each for each in self._listed}
        rows = []
        for entry in ranked([each.entry for each in self._listed], text, self.recent):
            act = partial(self._do, by_name[entry.name])
            rows.append(
                Row(entry.title, act, " or ".join(entry.keys), entry.help, entry.reason, entry.checked)
            )
        return Answer(rows)

    def _do(self, doable: Doable) -> None:
        self.recent = with_latest(self.recent, doable.entry.name)
        self.recent_changed.emit(self.recent)
        doable.do()

    def _params(self, typed: str) -> Answer:
        layout = self._layout
        if layout is None:
            return Answer(note=NO_PARAMS)
        if self._names[0] is not layout:
            self._names = layout, Texts(s.name for s in layout.segments)
        rows = []
        for i in self._names[1].find(typed, MOST_PARAMS):
            segment = layout.segments[i]
            block = "weight decay" if segment.block == "wd" else "no weight decay"
            what = f"{fmt.plural(segment.numel, 'element')} from {segment.offset:,} on, {block}"
            act = partial(self._go_to_param, segment.name)
            rows.append(Row(segment.name, act, fmt.shape(segment.param.shape), what))
        more = (
            f"The first {MOST_PARAMS} of {len(layout.segments):,} params" if len(rows) == MOST_PARAMS else ""
        )
        return Answer(rows, more)

    def _go_to_param(self, name: str) -> None:
        self.param_wanted.emit(name)
        self.param_sought.emit(name)

    def _offset(self, typed: str) -> Answer:
        layout = self._layout
        if layout is None:
            return Answer(note=NO_PARAMS)
        if not typed:
            return Answer(note=f"Type {HINT}.")
        try:
            spot = parse_offset(typed, layout)
        except UsageError as error:
            return Answer(note=str(error))
        return Answer([Row(spot.text, partial(self._go_to_spot, spot))])

    def _go_to_spot(self, spot: Spot) -> None:
        if spot.segment is not None:
            self.element_wanted.emit(spot.segment.name, spot.index)
        self.spot_wanted.emit(spot.element)

    def _step(self, typed: str) -> Answer:
        step, _, dispatch = typed.replace(",", "").partition(":")
        number = (
            step.isascii()
            and step.isdigit()
            and (not dispatch or (dispatch.isascii() and dispatch.isdigit()))
        )
        if not number or len(step) > 10 or int(step) > MAX_STEP or len(dispatch) > 5:
            return Answer(note=STEP_HINT)
        seek = Seek(int(step), int(dispatch) if dispatch else None)
        where = f", after its dispatch {seek.dispatch}" if seek.dispatch is not None else ""
        return Answer([Row(f"Go to step {seek.step:,}{where}", partial(self._send, seek))])

    @property
    def _layout(self) -> Layout | None:
        plan = self._snapshot.plan if self._snapshot is not None else None
        return plan.layout if plan is not None else None

    # --- places

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """The run stands elsewhere, or is another one."""
        before, self._snapshot = self._snapshot, snapshot
        if before is not None and not same_run(before, snapshot):
            self.places.forget()
            self.moved.emit()
        if snapshot.cursor is not None:
            self.places.update(self._at(snapshot.cursor))

    def sent(self, command: Command) -> None:
        """A command of a person goes to the worker: one that leads elsewhere is a move."""
        cursor = self._snapshot.cursor if self._snapshot is not None else None
        if isinstance(command, Seek) and cursor is not None:
            dispatch = cursor.count if command.dispatch is None else command.dispatch
            self._go(replace(self.places.here, step=command.step, dispatch=dispatch), "step")

    def selected(self, param: str, index: int | None = None) -> None:
        """A person selected a param or an element of one, anywhere."""
        here = self.places.here
        if index is None and param == here.param:
            # The same param again: its element stays.
            return
        self._go(replace(here, param=param, index=index), "selection")

    def landed(self, param: str, index: int) -> None:
        """The run itself has selected an element, as where a breakpoint stops it."""
        self.places.update(replace(self.places.here, param=param, index=index))

    def why_not(self) -> dict[str, str]:
        """Why one cannot go back or forward, "" where one can."""
        return {
            "back": "" if self.places.behind else "no other place was gone to yet",
            "forward": "" if self.places.ahead else "nothing was gone back from",
        }

    def viewed(self, view: str) -> None:
        """A person went to a view."""
        self._go(replace(self.places.here, view=view), "view")

    def back(self) -> None:
        """Go to where one was before."""
        self._return(self.places.back())

    def forward(self) -> None:
        """Go to where one was before going back."""
        self._return(self.places.forward())

    def _at(self, cursor: Cursor) -> Place:
        return replace(self.places.here, step=cursor.step, dispatch=cursor.dispatch)

    def _go(self, to: Place, kind: str) -> None:
        if not self._returning:
            self.places.go(to, kind)
            self.moved.emit()

    def _return(self, way: Way | None) -> None:
        if way is not None:
            # What is set off by it is no move of a person.
            self._returning = True
            try:
                self._travel(way)
            finally:
                self._returning = False
        self.moved.emit()

    def _travel(self, way: Way) -> None:
        to = way.to
        if "view" in way.parts:
            self.places.update(replace(self.places.here, view=to.view))
            if to.view:
                self.view_wanted.emit(to.view)
        if "selection" in way.parts:
            self.places.update(replace(self.places.here, param=to.param, index=to.index))
            if to.index is None:
                self.param_wanted.emit(to.param)
            else:
                self.element_wanted.emit(to.param, to.index)
        if "moment" in way.parts:
            cursor = self._snapshot.cursor if self._snapshot is not None else None
            at_end = cursor is not None and to.dispatch >= cursor.count
            self._send(Seek(to.step, None if at_end else to.dispatch))
