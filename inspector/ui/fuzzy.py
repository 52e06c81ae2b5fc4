"""Finding by a few letters: which texts hold them, the likeliest first. No Qt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from heapq import nsmallest

BOUNDARIES = " ._-/:(&"
INSIDE, SCATTERED = 20, 60
"""What a match in the middle of a word, and one with gaps, cost beside one at the start of a word."""
MOST_GAPS = 39


class Texts:
    """Texts to be searched again and again, as while somebody types; upper and lower case are alike."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = tuple(text.lower() for text in texts)

    def __len__(self) -> int:
        return len(self._texts)

    def find(self, query: str, most: int) -> list[int]:
        """The indices of at most `most` texts that hold every word of `query`, the likeliest first.

        Equally likely ones stay in their order; an empty query finds all.
        """
        return [i for _, i in nsmallest(most, ((cost, i) for i, cost in self.costs(query).items()))]

    def costs(self, query: str) -> dict[int, int]:
        """What each text that holds every word of `query` costs: the less, the likelier it is meant."""
        found = dict.fromkeys(range(len(self._texts)), 0)
        for word in query.lower().split():
            near = _near(self._texts, word, found)
            # Gaps are looked for only where nothing holds the word as it stands.
            found = near or _scattered(self._texts, word, found)
        whole = query.lower().strip()
        for i in found if whole else ():
            text = self._texts[i]
            found[i] -= 2 if text == whole else int(text.startswith(whole))
        return found


def _near(texts: Sequence[str], word: str, among: dict[int, int]) -> dict[int, int]:
    found = {}
    for i, before in among.items():
        text = texts[i]
        at = text.find(word)
        if at < 0:
            continue
        cost = _cost(text, at)
        while cost == INSIDE and (at := text.find(word, at + 1)) > 0:
            cost = _cost(text, at)
        found[i] = before + cost + (text != word)
    return found


def _cost(text: str, at: int) -> int:
    if at == 0:
        return 0
    return INSIDE // 2 if text[at - 1] in BOUNDARIES else INSIDE


def _scattered(texts: Sequence[str], word: str, among: dict[int, int]) -> dict[int, int]:
    letters = [re.escape(letter) for letter in word]
    # What lies between is taken as short as it can be, without going back: linear in the text.
    pattern = letters[0] + "".join(f"[^{letter}]*{letter}" for letter in letters[1:])
    search = re.compile(pattern).search
    found = {}
    for i, before in among.items():
        match = search(texts[i])
        if match is not None:
            gaps = match.end() - match.start() - len(word)
            found[i] = before + SCATTERED + min(gaps, MOST_GAPS)
    return found
