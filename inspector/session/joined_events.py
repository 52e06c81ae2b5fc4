"""What was found and noted in several processes, told once where they say the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inspector.findings import Finding
from inspector.session.records import Note
from inspector.session.shards import ShardMap, global_index

OF_EVERY_ELEMENT = ("dead-gradient", "no-gradient", "intermittent-gradient")
"""Rules that say something of all elements of a param, or of all params: what holds of one part of several may not hold
of the whole."""


def joined_findings(shards: ShardMap, found: Sequence[Sequence[Finding]], last: int) -> tuple[Finding, ...]:
    """Findings of each rank up to step `last`, by step; those of one rule, step and param once, as the first has it.

    Elements are those of the whole param. One that not all ranks have names those that do. What is said of every
    element is told where it is said of every part, at the step of the last that says so.
    """
    found = _true_of_whole(shards, found)
    ranks: dict[tuple[str, int, str | None], list[int]] = {}
    first: dict[tuple[str, int, str | None], Finding] = {}
    for rank, findings in enumerate(found):
        for each in findings:
            if each.step > last:
                continue
            key = (each.rule, each.step, each.param)
            first.setdefault(key, _of_whole(shards, rank, each))
            ranks.setdefault(key, []).append(rank)
    told = []
    for key, each in first.items():
        those = tuple(dict.fromkeys(ranks[key]))
        if len(those) < len(found):
            text = f"Rank {those[0]}: {each.message}"
            each = replace(
                each, message=text, evidence={**each.evidence, "ranks": ", ".join(map(str, those))}
            )
        told.append(each)
    return tuple(sorted(told, key=lambda each: each.step))


def _true_of_whole(shards: ShardMap, found: Sequence[Sequence[Finding]]) -> list[list[Finding]]:
    """Without what is said of every element of one part while others have it not, or later."""
    said: dict[tuple[str, str | None], dict[int, Finding]] = {}
    for rank, findings in enumerate(found):
        for each in findings:
            if each.rule in OF_EVERY_ELEMENT:
                said.setdefault((each.rule, each.param), {}).setdefault(rank, each)
    kept = [[each for each in findings if each.rule not in OF_EVERY_ELEMENT] for findings in found]
    for (_, param), by_rank in said.items():
        holders = _holders(shards, param)
        if holders <= by_rank.keys():
            last = max((by_rank[rank] for rank in holders or by_rank), key=lambda each: each.step)
            for findings in kept:
                findings.append(last)
    return kept


def _holders(shards: ShardMap, param: str | None) -> set[int]:
    """The ranks that keep elements of a param, of any where it is None."""
    wholes = [each for name, each in shards.by_name.items() if param in (None, name)]
    return {piece.rank for whole in wholes for piece in whole.listed if piece.numel}


def _of_whole(shards: ShardMap, rank: int, finding: Finding) -> Finding:
    whole = shards.by_name.get(finding.param or "")
    if whole is None or finding.index is None:
        return finding
    piece = next((p for p in whole.listed if p.rank == rank), None)
    if piece is None or not 0 <= finding.index < piece.numel:
        return replace(finding, index=None)
    return replace(finding, index=global_index(piece, whole.param.shape, finding.index))


def joined_notes(notes: Sequence[Sequence[Note]], last: int) -> tuple[Note, ...]:
    """Notes of each rank up to the step after `last`, by step; what not all ranks noted names the first that did."""
    ranks: dict[Note, list[int]] = {}
    for rank, each in enumerate(notes):
        for note in each:
            if note.step <= last + 1:
                ranks.setdefault(note, []).append(rank)
    told = [
        note if len(set(those)) == len(notes) else replace(note, text=f"rank {those[0]}: {note.text}")
        for note, those in ranks.items()
    ]
    return tuple(sorted(told, key=lambda note: note.step))
