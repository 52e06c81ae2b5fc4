"""What is looked at of the run; of most a newer one replaces an older, None while nobody looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from inspector.looking import MatrixRequest
from inspector.mapping import MapRequest
from inspector.runtime.plotted import Fall, Line
from inspector.stores import Lane


@dataclass(frozen=True, slots=True)
class ViewMap:
    """What the map shows, and the whole of the lanes beside it; None while nobody sees it. A newer one replaces it."""

    request: MapRequest | None
    overview: MapRequest | None = None
    """Of the same quantity."""


@dataclass(frozen=True, slots=True)
class ViewValues:
    """Which elements of `param` the value table shows; None while nobody sees it. A newer one replaces it."""

    param: str | None
    start: int = 0
    count: int = 0
    raw: Literal["", "codes", "half"] = ""
    """What is read beside the values: 8-bit codes of m and v, or the half-precision mirror of w."""


@dataclass(frozen=True, slots=True)
class ViewElement:
    """Which element, flat, of `param` the microscope shows; None while nobody looks. A newer one replaces it."""

    param: str | None
    index: int = 0


@dataclass(frozen=True, slots=True)
class ViewMatrix:
    """Which matrix is shown as an image; None while nobody sees one. A newer one replaces it."""

    request: MatrixRequest | None


@dataclass(frozen=True, slots=True)
class ViewStates:
    """Of which param states in shapes of their own are shown; None while nobody sees them. A newer one replaces it."""

    param: str | None


@dataclass(frozen=True, slots=True)
class ViewHistograms:
    """Whose histograms are shown: a param, or None for all; `lanes` empty while nobody sees them."""

    param: str | None
    lanes: tuple[Lane, ...] = ("m", "v")


@dataclass(frozen=True, slots=True)
class ViewLines:
    """What is plotted over steps beside the history of the run; kept from now on, until it is asked for no more.

    `seen` are those of them that are in sight: only they are sent. A newer one replaces it.
    """

    lines: tuple[Line, ...] = ()
    falls: tuple[Fall, ...] = ()
    seen: frozenset[Line | Fall] = frozenset()


@dataclass(frozen=True, slots=True)
class ViewEightBit:
    """Whose errors by block are shown, None for nobody's; `watched` False while nobody looks at any. A newer one
    replaces it."""

    param: str | None
    watched: bool = True
