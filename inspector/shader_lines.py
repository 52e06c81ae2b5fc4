"""Which lines of WGSL compute which line of the update: read out of the assignments in the shader's own text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from inspector.kernel_slots import KERNEL_SLOTS
from inspector.own_kernels import OwnKernel
from inspector.plan import Dispatch, Plan
from inspector.shader_text import OPTIMIZERS, ShaderUnit, unit
from inspector.wgsl import parse
from inspector.wgsl_tokens import Token, tokens

UPDATED: Mapping[str, str] = {
    "g'": "to.grad", "m": "to.m", "v": "to.v", "m̂": "to.m_hat", "v̂": "to.v_hat", "denominator": "to.denominator",
    "ratio": "to.ratio", "decay": "to.decay", "update": "to.change", "w": "to.w",
}  # fmt: skip
"""By line of the update, what `adam` and `updated` assign."""
OTHERS: Mapping[str, str] = {**UPDATED, "direction": "to.m_hat", "blend": "to.m_hat", "sign": "to.ratio"}
"""The same by the lines that other optimizers have."""
PUBLISHED: Mapping[str, str] = {
    "g'": "grad", "m": "m1", "v": "v1", "m̂": "m_hat", "v̂": "v_hat", "denominator": "update", "ratio": "update",
    "decay": "update", "update": "update", "w": "w[i]",
}  # fmt: skip
"""The same in the scalar kernel as it was published, which does the last four in one expression."""
GIVEN: Mapping[str, str] = {"w₀": "w0", "g₀": "g0", "m₀": "m0", "v₀": "v0"}
"""By what an update is given, what the kernels of four elements a thread read it into."""
FINALIZED: Mapping[str, str] = {"gradNorm": "grad_norm", "clipScale": "grad_stats[1]"}
CONDITIONS = ("PRECISE", "L2", "!CODED||CODEC!=LINEAR")
"""Conditions of the kernels that pipeline constants decide; under any other both branches count as run."""
DEFAULTS: Mapping[str, float] = {"PRECISE": 0.0, "L2": 0.0, "CODEC": 0.0, "CODED": 1.0}
_LINEAR = 0.0


@dataclass(frozen=True, slots=True)
class ShownCode:
    """One text of WGSL: its title, the text, and the lines of it, from 1, that compute each line of the update."""

    title: str
    unit: ShaderUnit
    lines: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class UpdateCode:
    """The WGSL of an element's update: the kernels in the order in which they run. `note` says what cannot be known."""

    shown: tuple[ShownCode, ...]
    note: str = ""

    def of(self, line: str) -> tuple[ShownCode, tuple[int, ...]]:
        """The text that computes a line of the update and the lines in it; no lines where that cannot be known."""
        for each in self.shown:
            if line in each.lines:
                return each, each.lines[line]
        # In a kernel of the user's what is not known is somewhere in it.
        return (self.shown[0] if line in FINALIZED else self.shown[-1]), ()


def update_code(plan: Plan, dispatch: Dispatch) -> UpdateCode:
    """The WGSL that one update dispatch of a plan runs, and finalize_grad_stats before it."""
    finalize = next((d for d in plan.dispatches if d.entry_point == "finalize_grad_stats"), None)
    shown = [_shown(d) for d in (finalize, dispatch) if d is not None]
    own = [d.own for d in (finalize, dispatch) if d is not None and d.own is not None]
    note = ""
    if own:
        names = " and ".join(each.entry_point for each in own)
        note = f"{names} {'is' if len(own) == 1 else 'are'} your own: only the lines that store a result are known."
    return UpdateCode(tuple(shown), note)


def _shown(dispatch: Dispatch) -> ShownCode:
    if dispatch.own is not None:
        return _own(dispatch.own, dispatch.entry_point)
    code = unit(dispatch.kernel)
    if dispatch.entry_point == "finalize_grad_stats":
        return ShownCode(dispatch.kernel, code, _lines(code.text, ("finalize_grad_stats",), FINALIZED, {}))
    constants = {**DEFAULTS, **dict(dispatch.constants)}
    if dispatch.kernel.startswith("published/"):
        lines = (
            _lines(code.text, ("adam",), UPDATED, constants)
            if constants["PRECISE"]
            else _lines(code.text, ("adamw_update",), PUBLISHED, constants)
        )
        return ShownCode(dispatch.kernel, code, lines)
    if dispatch.kernel.startswith(OPTIMIZERS):
        read = _lines(code.text, (dispatch.entry_point,), GIVEN, constants)
        return ShownCode(dispatch.kernel, code, read | _lines(code.text, ("updated",), OTHERS, constants))
    coded = any(b.name == "m_packed" for b in dispatch.bindings)
    functions = ("adam", "updated") if coded else ("adam",)
    read = _lines(code.text, (dispatch.entry_point,), GIVEN, constants)
    return ShownCode(dispatch.kernel, code, read | _lines(code.text, functions, UPDATED, constants))


def _own(own: OwnKernel, entry_point: str) -> ShownCode:
    """A user's kernel: lines that store to what is bound at the slots of w, m, v or grad_stats."""
    bound = {r.slot: r.name for r in parse(own.source).resources if r.group == 0}
    stores: dict[str, list[int]] = {}
    names = {bound[s.number]: s.name for s in KERNEL_SLOTS[entry_point].slots if s.number in bound}
    for each in _assignments(own.source, entry_point, {}):
        variable, _, index = each.target.partition("[")
        slot = names.get(variable.split(".")[0], "") if index else ""
        line = {"m_packed": "m", "v_packed": "v"}.get(slot, slot)
        if slot == "grad_stats":
            line = {"0]": "gradNorm", "1]": "clipScale"}.get(index, "")
        if line in ("w", "m", "v", "gradNorm", "clipScale"):
            stores.setdefault(line, []).extend(each.lines)
    lines = {name: tuple(sorted(set(found))) for name, found in stores.items()}
    return ShownCode(own.place, ShaderUnit(own.source, ((1, own.file),)), lines)


def _lines(
    text: str, functions: tuple[str, ...], wanted: Mapping[str, str], constants: Mapping[str, float]
) -> dict[str, tuple[int, ...]]:
    by_target: dict[str, list[int]] = {}
    for function in functions:
        for each in _assignments(text, function, constants):
            by_target.setdefault(each.target, []).extend(each.lines)
    return {name: tuple(sorted(set(by_target.get(target, ())))) for name, target in wanted.items()}


@dataclass(frozen=True, slots=True)
class Assignment:
    """A statement that gives `target` a value, and the lines it stands in."""

    target: str
    lines: tuple[int, ...]


def _assignments(text: str, function: str, constants: Mapping[str, float]) -> Iterator[Assignment]:
    """The assignments in a function that run with these constants, up to a return that does."""
    body = _body(text, function)
    # For each open block: whether what is in it runs for certain, and whether an else of it does not.
    open_blocks: list[tuple[bool | None, bool | None]] = []
    statement: list[Token] = []
    last_closed: bool | None = None
    for token in body:
        if token.text == "{":
            runs = _runs(statement, last_closed, constants)
            open_blocks.append((runs, runs))
            statement, last_closed = [], None
        elif token.text == "}":
            _, last_closed = open_blocks.pop() if open_blocks else (None, None)
            statement = []
        elif token.text == ";":
            skipped = any(runs is False for runs, _ in open_blocks)
            if not skipped and statement:
                if statement[0].text == "return" and all(runs for runs, _ in open_blocks):
                    return
                found = _assigned(statement)
                if found:
                    lines = tuple(range(statement[0].line, token.line + 1))
                    yield Assignment(found, lines)
            statement, last_closed = [], None
        else:
            statement.append(token)


def _runs(head: list[Token], before: bool | None, constants: Mapping[str, float]) -> bool | None:
    """Whether the block behind `head` runs; None where that is not known before it does."""
    words = [token.text for token in head]
    if words[:1] == ["else"]:
        other = None if before is None else not before
        return other if len(words) == 1 else _and(other, _holds("".join(words[2:]), constants))
    return _holds("".join(words[1:]), constants) if words[:1] == ["if"] else True if not words else None


def _and(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def _holds(condition: str, constants: Mapping[str, float]) -> bool | None:
    """The value of one of CONDITIONS."""
    if condition in ("PRECISE", "L2") and condition in constants:
        return bool(constants[condition])
    if condition == CONDITIONS[2] and constants:
        return not constants["CODED"] or constants["CODEC"] != _LINEAR
    return None


def _body(text: str, function: str) -> list[Token]:
    """The tokens between the braces of a function; none where there is no such function."""
    found = list(tokens(text))
    for i, token in enumerate(found):
        if token.text == "fn" and i + 1 < len(found) and found[i + 1].text == function:
            start = next((k for k in range(i, len(found)) if found[k].text == "{"), len(found))
            depth = 0
            for k in range(start, len(found)):
                depth += {"{": 1, "}": -1}.get(found[k].text, 0)
                if not depth:
                    return found[start + 1 : k]
    return []


def _assigned(statement: list[Token]) -> str:
    """What a statement assigns, as it is written without spaces; "" where it assigns nothing."""
    words = [token.text for token in statement]
    if words[0] in ("let", "var", "const"):
        return words[1] if "=" in words else ""
    depth = 0
    for i, word in enumerate(words):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(word, 0)
        if word == "=" and not depth and words[i + 1 : i + 2] != ["="]:
            target = words[:i]
            if target and target[-1] in "+-*/":
                target.pop()
            return "".join(target)
    return ""
