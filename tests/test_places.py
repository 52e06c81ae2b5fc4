"""What going about rests on, without any window: letters to names, offsets, places, what can be taken back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ui_helpers import llama_params, make_snapshot, small_layout, wide_layout

from inspector.diagnosis.stopping import Stopping
from inspector.diagnosis.watchpoints import Condition
from inspector.errors import UsageError
from inspector.plan import Variant
from inspector.runtime import commands as c
from inspector.runtime.beside import NOTHING_BESIDE
from inspector.runtime.hits import Breakpoint
from inspector.runtime.snapshots import Mark
from inspector.ui.fuzzy import Texts
from inspector.ui.offsets import parse_offset
from inspector.ui.palette_entries import Entry, ranked, with_latest
from inspector.ui.places import AT_ONCE_S, SAME_MOVE_S, Place, Places
from inspector.ui.reversal import change_of

# --- a few letters

NAMES = tuple(param.name for param in llama_params(layers=12))


def find(query: str, *texts: str) -> list[str]:
    return [texts[i] for i in Texts(texts).find(query, len(texts))]


def test_what_begins_with_the_letters_comes_first_then_words_then_middles() -> None:
    assert find("run", "prune", "to run", "running", "run", "nothing") == [
        "run",
        "running",
        "to run",
        "prune",
    ]


def test_words_may_stand_in_any_order_and_all_have_to_be_there() -> None:
    assert find("weight 3. qkv", *NAMES) == ["h.3.attn.qkv.weight"]
    assert find("qkv nothing", *NAMES) == []


def test_scattered_letters_are_found_where_nothing_holds_them_together() -> None:
    assert find("h3qkv", *NAMES) == ["h.3.attn.qkv.weight"]
    assert find("tokemb", *NAMES) == ["tok_embeddings.weight"]
    assert find("QKV", *NAMES)[0] == "h.0.attn.qkv.weight", "in their order"


def test_the_later_place_in_a_text_counts_where_it_is_the_start_of_a_word() -> None:
    assert find("norm", "abnorm norm", "abnormal") == ["abnorm norm", "abnormal"]


@given(st.text(max_size=12), st.lists(st.text(max_size=20), max_size=12))
def test_a_text_is_found_exactly_where_it_has_the_letters_in_order(query: str, texts: list[str]) -> None:
    """Held against the definition: each word's letters one after the other somewhere in the text."""

    def has(text: str, word: str) -> bool:
        rest = iter(text)
        return all(letter in rest for letter in word)

    words = query.lower().split()
    found = {texts[i] for i in Texts(texts).find(query, len(texts))}
    assert found <= {t for t in texts if all(has(t.lower(), w) for w in words)}
    # What holds every word as it stands is never left out.
    assert found >= {t for t in texts if all(w in t.lower() for w in words)}


def test_no_more_than_asked_for() -> None:
    names = [s.name for s in wide_layout().segments]
    assert len(Texts(names).find("b", 200)) == 200
    assert len(Texts(names).find("9999", 200)) == sum("9999" in name for name in names)


ENTRIES = (
    Entry("run", "Run", "Run", ("F5",)),
    Entry("step", "Run", "Step dispatch", ("F10",)),
    Entry("break", "Run", "Break on non-finite gradients", help="Stop where gradients hold NaN or Inf"),
    Entry("keys", "Help", "Keys"),
)


def test_what_was_done_last_comes_first_and_breaks_ties() -> None:
    assert [e.name for e in ranked(ENTRIES, "", ("keys", "step", "gone"))] == ["keys", "step", "run", "break"]
    assert [e.name for e in ranked(ENTRIES, "run")] == ["run", "step", "break"]
    assert next(e.name for e in ranked(ENTRIES, "Run: Break on non-finite gradients")) == "break"
    assert next(e.name for e in ranked(ENTRIES, "Run: Run", ("step",))) == "run"
    assert [e.name for e in ranked(ENTRIES, "run", ("break",))] == ["run", "break", "step"]


def test_what_it_does_is_found_where_its_name_does_not_say_so() -> None:
    assert [e.name for e in ranked(ENTRIES, "NaN")] == ["break"]


def test_the_latest_are_each_kept_once() -> None:
    assert with_latest(("a", "b", "c"), "b") == ("b", "a", "c")
    many = tuple(str(i) for i in range(100))
    assert len(with_latest(many, "new")) == len(with_latest(with_latest(many, "new"), "newer")) < 100


# --- offsets

W0 = small_layout().segments[0]


@pytest.mark.parametrize(
    ("typed", "element"),
    [
        ("0", 0),
        ("5", 5),
        ("1,000", 1000),
        ("1_000 elements", 1000),
        ("20b", 5),
        ("23 bytes", 5),
        ("0x14", 5),
        ("0X1_4", 5),
        ("1k", 256),
        ("4 KiB", 1024),
        ("4 kB", 1000),
        ("402 kB", 100_500),
    ],
)
def test_an_offset_in_elements_or_bytes(typed: str, element: int) -> None:
    spot = parse_offset(typed, small_layout())
    assert spot.element == element
    segment = spot.segment
    assert segment is not None
    assert segment.offset + spot.index == element
    assert f"element {element:,}, byte {4 * element:,}" in spot.text


@pytest.mark.parametrize("typed", ["", "x", "-1", "1.5", "0x", "12 parsecs", "1e3", "９"])
def test_what_is_no_offset_is_told_how_one_is_written(typed: str) -> None:
    with pytest.raises(UsageError, match="0x4000"):
        parse_offset(typed, small_layout())


def test_an_offset_beyond_the_end_is_told_where_the_end_is() -> None:
    end = small_layout().padded_elements
    assert parse_offset(str(end - 1), small_layout()).element == end - 1
    for typed in (str(end), f"{4 * end}b", "9" * 24):
        with pytest.raises(UsageError, match=f"{end:,} elements, {4 * end:,} bytes"):
            parse_offset(typed, small_layout())


def test_a_gap_is_said_to_be_one() -> None:
    layout = wide_layout()
    ends = np.array([s.stop for s in layout.segments])
    gap = next(int(e) for e in ends if layout.at(int(e)) is None and e < layout.padded_elements)
    spot = parse_offset(str(gap), layout)
    assert spot.segment is None
    assert spot.text.startswith("a gap between params")


# --- places


class Clock:
    """A clock that stands still between ticks."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def places(clock: Clock) -> Places:
    made = Places(clock)
    made.update(Place(step=1))
    return made


def go(places: Places, clock: Clock, kind: str, after: float = 10.0, **changes: object) -> None:
    clock.now += after
    places.go(replace(places.here, **changes), kind)  # type: ignore[arg-type]


def test_back_and_forward_through_steps(places: Places, clock: Clock) -> None:
    go(places, clock, "step", step=50)
    go(places, clock, "step", step=9)
    way = places.back()
    assert way is not None
    assert (way.to.step, way.parts) == (50, {"moment"})
    places.update(way.to)
    way = places.back()
    assert way is not None
    assert way.to.step == 1
    places.update(way.to)
    assert places.back() is None
    way = places.forward()
    assert way is not None
    assert way.to.step == 50


def test_going_elsewhere_drops_what_lay_ahead(places: Places, clock: Clock) -> None:
    go(places, clock, "step", step=50)
    way = places.back()
    assert way is not None
    places.update(way.to)
    go(places, clock, "step", step=7)
    assert places.ahead == 0
    assert places.forward() is None


def test_a_selection_taken_back_leaves_the_run_where_it_has_come(places: Places, clock: Clock) -> None:
    go(places, clock, "selection", param="a")
    go(places, clock, "selection", param="b")
    places.update(replace(places.here, step=300))
    way = places.back()
    assert way is not None
    assert way.parts == {"selection"}
    assert way.to.param == "a"


def test_a_drag_along_the_timeline_is_one_move(places: Places, clock: Clock) -> None:
    for step in range(2, 40):
        go(places, clock, "step", after=SAME_MOVE_S / 2, step=step)
    assert places.behind == 1
    go(places, clock, "step", after=SAME_MOVE_S * 1.1, step=90)
    assert places.behind == 2


def test_a_click_that_goes_to_a_step_and_an_element_is_one_move(places: Places, clock: Clock) -> None:
    go(places, clock, "step", step=97)
    go(places, clock, "selection", after=AT_ONCE_S / 2, param="a")
    go(places, clock, "selection", after=AT_ONCE_S / 2, param="a", index=17)
    assert places.behind == 1
    way = places.back()
    assert way is not None
    assert way.parts == {"moment", "selection"}
    assert way.to == Place(step=1)


def test_a_move_to_where_one_is_or_has_come_by_itself_is_none(places: Places, clock: Clock) -> None:
    go(places, clock, "step", step=1)
    assert places.behind == 0
    go(places, clock, "step", step=5)
    places.update(replace(places.here, step=1))
    assert places.back() is None, "the run has come back there already"


def test_places_are_bounded_and_forgotten(places: Places, clock: Clock) -> None:
    for step in range(2, 1000):
        go(places, clock, "step", step=step)
    assert places.behind == 200
    places.forget()
    assert (places.behind, places.ahead, places.here) == (0, 0, Place())


# --- what can be taken back

NAN = Condition("nonfinite", ">", 0.0)


@pytest.mark.parametrize(
    ("command", "text", "undo"),
    [
        (c.SetHyper("lr", 0.5), "lr 0.001 → 0.5", c.SetHyper("lr", 0.001)),
        (c.SetSchedule("warmup:10"), "schedule constant → warmup:10", c.SetSchedule("constant")),
        (c.SetStats("full"), "statistics light → full", c.SetStats("light")),
        (c.SetVariant(Variant(reduce="atomic")), "form: reduce atomic", c.SetVariant(Variant())),
        (c.TryShader("scale", "text"), "the kernel scale", c.TryShader("scale", None)),
        (
            c.RemoveBreakpoint(NAN),
            "remove breakpoint nonfinite > 0, once",
            c.SetBreakpoint(NAN, False, Stopping(once=True)),
        ),
        (
            c.SetBreakpoint(NAN, True),
            "change breakpoint nonfinite > 0, once",
            c.SetBreakpoint(NAN, False, Stopping(once=True)),
        ),
        (
            c.SetBreakpoint(Condition("loss", ">", 3.0)),
            "add breakpoint loss > 3",
            c.RemoveBreakpoint(Condition("loss", ">", 3.0)),
        ),
        (c.SetBookmark(40, ""), "remove bookmark at step 40", c.SetBookmark(40, "here")),
        (c.SetBookmark(40, "x"), "change bookmark at step 40", c.SetBookmark(40, "here")),
        (c.SetBookmark(41, "x"), "put bookmark at step 41", c.SetBookmark(41, "")),
        (c.DropOverlay("/a"), "remove an overlay", c.ShowOverlay("/a")),
        (c.ShowOverlay("/a"), "lay a recording under the run", c.DropOverlay("/a")),
    ],
)
def test_a_change_is_taken_back_by_what_was_before(command: c.Command, text: str, undo: c.Command) -> None:
    before = make_snapshot(
        breakpoints=(Breakpoint(NAN, False, stopping=Stopping(once=True)),),
        bookmarks=(Mark(40, "here"),),
        beside=NOTHING_BESIDE,
    )
    change = change_of(command, before)
    assert change is not None
    assert (change.text, change.undo, change.redo) == (text, (undo,), (command,))


@pytest.mark.parametrize(
    "command",
    [
        c.SetHyper("lr", 1e-3),
        c.SetHyper("nothing", 1.0),
        c.SetStats("light"),
        c.SetVariant(Variant()),
        c.RemoveBreakpoint(NAN),
        c.SetBookmark(3, ""),
        c.StepDispatch(),
        c.Seek(4),
        c.OpenSource("charlm"),
    ],
)
def test_what_changes_nothing_or_has_its_own_way_back_is_no_change(command: c.Command) -> None:
    assert change_of(command, make_snapshot()) is None
