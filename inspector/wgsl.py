"""What a WGSL file declares, read without a compiler: entry points, bindings, overrides, and who uses what.

W3C WebGPU Shading Language §3 to §12, as far as a check of bindings needs it. What is not understood is passed
over: judging a program is left to the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from inspector.wgsl_tokens import Token, tokens
from inspector.wgsl_types import Types

_CLOSES = {"(": ")", "{": "}", "[": "]", "<": ">"}


@dataclass(frozen=True, slots=True)
class Resource:
    """A variable with a binding. `group` and `slot` are None where they are missing or no number."""

    name: str
    group: int | None
    slot: int | None
    space: str
    """"storage", "uniform", or what else stands in its place."""
    access: str
    """"read", "read_write" or "write"; "" for anything but storage."""
    type: str
    line: int

    @property
    def declared(self) -> str:
        """As it is written: "var<storage, read> w: array<f32>"."""
        space = f"{self.space}, {self.access}" if self.access else self.space
        return f"var{f'<{space}>' if space else ''} {self.name}: {self.type}"


@dataclass(frozen=True, slots=True)
class Override:
    """A pipeline constant. `key` is what it is set by: its number where it has an @id, else its name."""

    name: str
    key: str
    has_default: bool
    line: int


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """A compute entry point; `threads` of a workgroup, None where that cannot be worked out."""

    name: str
    line: int
    threads: int | None
    uses: tuple[Resource, ...]
    """The variables that it names, or a function that it calls."""


@dataclass(frozen=True, slots=True)
class Module:
    """What one file declares; lines count from 1."""

    entry_points: tuple[EntryPoint, ...]
    resources: tuple[Resource, ...]
    overrides: tuple[Override, ...]
    enables: Mapping[str, int]
    """Language extensions, and the line of each."""
    types: Types


def parse(text: str) -> Module:
    """What `text` declares. Never fails: what it does not understand is left out."""
    parser = _Parser(tuple(tokens(text)))
    parser.run()
    types = parser.types
    resources = tuple(
        Resource(
            name,
            types.number(where.get("group")),
            types.number(where.get("binding")),
            space,
            access,
            type_,
            line,
        )
        for where, name, space, access, type_, line in parser.variables
        if "group" in where or "binding" in where
    )
    return Module(
        entry_points=tuple(
            EntryPoint(f.name, f.line, _threads(f, types), tuple(_used(f, parser.functions, resources)))
            for f in parser.functions.values()
            if "compute" in f.attributes
        ),
        resources=resources,
        overrides=tuple(parser.overrides),
        enables=parser.enables,
        types=types,
    )


@dataclass(frozen=True, slots=True)
class _Function:
    name: str
    line: int
    attributes: Mapping[str, str]
    names: frozenset[str]
    """What it names, its own parameters left out."""


@dataclass(slots=True)
class _Parser:
    """Goes through the global declarations, each of which moves `at` on by one token at least."""

    tokens: Sequence[Token]
    at: int = 0
    functions: dict[str, _Function] = field(default_factory=dict)
    variables: list[tuple[Mapping[str, str], str, str, str, str, int]] = field(default_factory=list)
    """Attributes, name, address space, access, type and line."""
    overrides: list[Override] = field(default_factory=list)
    enables: dict[str, int] = field(default_factory=dict)
    types: Types = field(default_factory=Types)

    def run(self) -> None:
        while self.at < len(self.tokens):
            attributes = self.attributes()
            word = self.take()
            match word.text:
                case "var":
                    self.variable(attributes)
                case "fn":
                    self.function(attributes)
                case "struct":
                    self.struct()
                case "const" | "override":
                    self.constant(word, attributes)
                case "alias":
                    name = self.take().text
                    self.types.aliases[name] = self.until(";").removeprefix("=")
                case "enable":
                    for name in self.until(";").split(","):
                        self.enables.setdefault(name, word.line)

    def variable(self, attributes: Mapping[str, str]) -> None:
        space = access = ""
        if self.next == "<":
            space, _, access = self.inside().partition(",")
        if space == "storage":
            access = access.strip(",") or "read"
        name = self.take()
        type_ = self.until("=", ";").removeprefix(":")
        if self.last == "=":
            self.until(";")
        self.variables.append((attributes, name.text, space, access, type_, name.line))

    def function(self, attributes: Mapping[str, str]) -> None:
        name = self.take()
        own = set()
        if self.next == "(":
            start = self.at
            self.inside()
            words = [t.text for t in self.tokens[start : self.at]]
            own = {word for word, after in pairwise(words) if after == ":"}
        while self.next not in ("{", ";", ""):
            self.take()
        start = self.at
        self.inside()
        body = [t.text for t in self.tokens[start : self.at]]
        # Behind a point stands a member or a swizzle: hp.w does not name the variable w.
        named = {word for before, word in pairwise(body) if before != "."}
        self.functions.setdefault(
            name.text, _Function(name.text, name.line, attributes, frozenset(named - own))
        )

    def struct(self) -> None:
        name = self.take().text
        if self.next != "{":
            return
        members: list[str] = []
        end = self.at + 1
        depth = 0
        start = end
        while end < len(self.tokens):
            text = self.tokens[end].text
            if depth == 0 and text in (",", "}"):
                members.append("".join(t.text for t in self.tokens[start:end]))
                start = end + 1
                if text == "}":
                    break
            depth += (text in "(<[") - (text in ")>]")
            end += 1
        self.at = end + 1
        self.types.structs[name] = tuple(m for m in members if m)

    def constant(self, word: Token, attributes: Mapping[str, str]) -> None:
        name = self.take()
        self.until("=", ";")
        has_default = self.last == "="
        value = self.until(";") if has_default else ""
        self.types.constants[name.text] = value
        if word.text == "override":
            number = self.types.number(attributes.get("id"))
            key = name.text if number is None else str(number)
            self.overrides.append(Override(name.text, key, has_default, name.line))

    def attributes(self) -> Mapping[str, str]:
        """Those before a declaration: what stands in the brackets of each, "" without."""
        found: dict[str, str] = {}
        while self.next == "@":
            self.take()
            name = self.take().text
            found[name] = self.inside() if self.next == "(" else ""
        return found

    # --- tokens

    @property
    def next(self) -> str:
        return self.tokens[self.at].text if self.at < len(self.tokens) else ""

    @property
    def last(self) -> str:
        return self.tokens[self.at - 1].text if self.at else ""

    def take(self) -> Token:
        if self.at >= len(self.tokens):
            return Token("", self.tokens[-1].line if self.tokens else 1)
        self.at += 1
        return self.tokens[self.at - 1]

    def inside(self) -> str:
        """What stands between the bracket that comes next and the one that closes it; both are taken."""
        opens = self.take().text
        closes = _CLOSES.get(opens, "")
        start, depth = self.at, 1
        while depth and self.at < len(self.tokens):
            text = self.take().text
            depth += (text == opens) - (text == closes)
        return "".join(t.text for t in self.tokens[start : self.at - (depth == 0)])

    def until(self, *signs: str) -> str:
        """The text before the first of these signs outside all brackets, which is taken too."""
        start = self.at
        depth = 0
        while self.at < len(self.tokens):
            text = self.take().text
            if depth <= 0 and text in signs:
                return "".join(t.text for t in self.tokens[start : self.at - 1])
            depth += (text in "([{") - (text in ")]}")
        return "".join(t.text for t in self.tokens[start:])


def _threads(function: _Function, types: Types) -> int | None:
    total = 1
    for part in function.attributes.get("workgroup_size", "").rstrip(",").split(","):
        size = types.number(part)
        if size is None or size < 1:
            return None
        total *= size
    return total


def _used(
    entry: _Function, functions: Mapping[str, _Function], resources: Sequence[Resource]
) -> Iterator[Resource]:
    reached: set[str] = set()
    waiting = [entry.name]
    while waiting:
        name = waiting.pop()
        if name not in reached and name in functions:
            reached.add(name)
            waiting += functions[name].names
    named = frozenset().union(*(functions[name].names for name in reached))
    return (r for r in resources if r.name in named)
