"""Types and constants of WGSL as a check of bindings needs them: what a buffer is made of, and how large."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

MAX_DEPTH = 32
"""Types and constants may name one another so deep; further down they count as not understood."""

MAX_EXPRESSION = 200
"""Characters of a constant expression that is still worked out."""

_SUFFIXED = re.compile(r"\b(0[xX][\da-fA-F]+|\d+)[ui]\b")
_NUMBER = re.compile(r"0[xX][\da-fA-F]+|\d+")
_STARTS_WITH_DIGIT = re.compile(r"(?<![\w.])\d[\w.]*")
_SCALAR_BYTES = {"f32": 4, "u32": 4, "i32": 4, "f16": 2}
_SHORT = {"f": "f32", "u": "u32", "i": "i32", "h": "f16"}
_VECTOR = re.compile(r"vec([234])(?:([fuih])|<(.+)>)")
_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What a type is made of. Of a runtime-sized array this is one item of it, `nbytes` its stride.

    `scalar` is the one kind of scalar in it ("f32", "atomic<u32>", …), "" where there are several.
    """

    scalar: str
    count: int
    nbytes: int
    align: int
    runtime: bool = False


@dataclass(slots=True)
class Types:
    """The names of a module: what each alias, struct and constant stands for, as text without spaces."""

    aliases: dict[str, str] = field(default_factory=dict)
    structs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)

    def number(self, text: str | None, depth: int = 0) -> int | None:
        """The whole number that a constant expression stands for, None where it is not understood."""
        if not text or depth > MAX_DEPTH or len(text) > MAX_EXPRESSION:
            return None
        plain = _SUFFIXED.sub(r"\1", text)
        if any(_NUMBER.fullmatch(word) is None for word in _STARTS_WITH_DIGIT.findall(plain)):
            return None
        try:
            tree = ast.parse(plain, mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        return self._value(tree.body, depth)

    def _value(self, node: ast.expr, depth: int) -> int | None:
        match node:
            case ast.Constant(value=int(value)):
                return value
            case ast.Name(id=name):
                return self.number(self.constants.get(name), depth + 1)
            case ast.Call(func=ast.Name(id="u32" | "i32"), args=[one]):
                return self._value(one, depth)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                a, b = self._value(left, depth), self._value(right, depth)
                if a is None or b is None or not (0 <= a < 1 << 32 and 0 <= b < 1 << 32):
                    return None
                shifts = isinstance(op, (ast.LShift, ast.RShift))
                if (shifts and b > 31) or (isinstance(op, (ast.Div, ast.Mod)) and b == 0):
                    return None
                return _OPERATORS[type(op)](a, b)
        return None

    def shape(self, type_: str, depth: int = 0) -> Shape | None:
        """What `type_` is made of (WGSL §14.4.1, sizes and alignments), None where it is not understood."""
        if depth > MAX_DEPTH:
            return None
        if type_ in self.aliases:
            return self.shape(self.aliases[type_], depth + 1)
        if type_ in _SCALAR_BYTES:
            return Shape(type_, 1, _SCALAR_BYTES[type_], _SCALAR_BYTES[type_])
        if (vector := _VECTOR.fullmatch(type_)) is not None:
            scalar = self.shape(_SHORT.get(vector[2]) or vector[3], depth + 1)
            return None if scalar is None else _vector(scalar, int(vector[1]))
        if type_ in ("atomic<u32>", "atomic<i32>"):
            return Shape(type_, 1, 4, 4)
        if type_.startswith("array<") and type_.endswith(">"):
            return self._array(type_[len("array<") : -1].rstrip(","), depth)
        if type_ in self.structs:
            return self._struct(self.structs[type_], depth)
        return None

    def _array(self, inner: str, depth: int) -> Shape | None:
        item_type, comma, count_text = inner.rpartition(",")
        if not comma or count_text.count(">") > count_text.count("<"):
            item_type, count_text = inner, ""
        item = self.shape(item_type, depth + 1)
        if item is None or item.runtime:
            return None
        stride = _round_up(item.nbytes, item.align)
        if not count_text:
            return Shape(item.scalar, item.count, stride, item.align, runtime=True)
        count = self.number(count_text)
        return None if not count else Shape(item.scalar, item.count * count, stride * count, item.align)

    def _struct(self, members: tuple[str, ...], depth: int) -> Shape | None:
        parts = []
        for member in members:
            # Attributes that move members about are rare; a struct with them counts as not understood.
            _, colon, type_ = member.partition(":")
            part = self.shape(type_, depth + 1) if colon and not member.startswith("@") else None
            if part is None:
                return None
            parts.append(part)
        if not parts:
            return None
        if parts[-1].runtime:
            return parts[-1] if len(parts) == 1 else None
        align = max(p.align for p in parts)
        end = 0
        for part in parts:
            end = _round_up(end, part.align) + part.nbytes
        scalars = {p.scalar for p in parts}
        scalar = scalars.pop() if len(scalars) == 1 else ""
        return Shape(scalar, sum(p.count for p in parts), _round_up(end, align), align)


def _vector(scalar: Shape, count: int) -> Shape:
    align = scalar.nbytes * (2 if count == 2 else 4)
    return Shape(scalar.scalar, count, scalar.nbytes * count, align)


def _round_up(value: int, to: int) -> int:
    return math.ceil(value / to) * to
