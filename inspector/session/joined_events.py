"""What was found and noted in several processes, told once where they say the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inspector.findings import Finding
from inspector.session.records import Note
from inspector.session.shards import ShardMap, global_index


def joined_findings(shards: ShardMap, found: Sequence[Sequence[Finding]], last: int) -> tuple[Finding, ...]:
    """Findings of each rank up to step `last`, by step; those of one rule, step and param once, as the first has it.

    Elements are those of the whole param. One that not all ranks have names those that do.
    """
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
