"""Frozen dataclasses as JSON text and back; what is read is checked against the declared types."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from numbers import Integral
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from inspector import plan

T = TypeVar("T")


class FormError(ValueError):
    """The text does not have the form of what it should hold."""


def to_text(value: Any) -> str:
    """`value` as JSON. Floats read back as the same number; NaN and Infinity are written as words, as Python does."""
    return json.dumps(_plain(value), ensure_ascii=True, separators=(",", ":"))


def from_text(kind: type[T], text: object) -> T:
    """The `kind` that `text` holds; FormError for anything else."""
    if not isinstance(text, str):
        raise FormError("it is no text")
    try:
        plain = json.loads(text)
    except RecursionError:
        raise FormError("it is nested too deep") from None
    except ValueError as error:
        raise FormError(f"it is not valid JSON ({error})") from None
    return cast(T, _typed(kind, plain))


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


@cache
def _hints(kind: type) -> dict[str, Any]:
    # own_kernels imports this name for the type checker alone.
    return get_type_hints(kind, localns={"Access": plan.Access})


def _typed(kind: Any, value: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _first_that_fits(arguments, value)
    if origin is Literal:
        if isinstance(value, str) and value in arguments:
            return value
    elif origin is tuple:
        if isinstance(value, list):
            if len(arguments) == 2 and arguments[1] is Ellipsis:
                return tuple(_typed(arguments[0], item) for item in value)
            if len(arguments) == len(value):
                return tuple(_typed(each, item) for each, item in zip(arguments, value, strict=True))
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        if isinstance(value, dict):
            return {key: _typed(arguments[1], item) for key, item in value.items()}
    elif kind is float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    elif kind in (int, bool, str, types.NoneType):
        if type(value) is kind and (kind is not int or abs(value) < 1 << 63):
            if kind is str:
                _check_text(value)
            return value
    elif is_dataclass(kind) and isinstance(value, dict):
        hints = _hints(cast(type, kind))
        unknown = value.keys() - hints.keys()
        if unknown:
            raise FormError(f"it has an unknown part {sorted(unknown)[0][:40]!r}")
        try:
            return cast(Any, kind)(**{name: _typed(hints[name], item) for name, item in value.items()})
        except TypeError:
            raise FormError("a part is missing") from None
    raise FormError(f"a part of it is {str(value)[:40]!r}, which does not belong there")


def _first_that_fits(kinds: tuple[Any, ...], value: Any) -> Any:
    # A whole number that fits an int stays one, whatever the order of the union.
    for kind in sorted(kinds, key=lambda kind: kind is float):
        try:
            return _typed(kind, value)
        except FormError:
            continue
    raise FormError(f"a part of it is {str(value)[:40]!r}, which does not belong there")


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")  # JSON can spell half a character, which no terminal or file takes.
    except UnicodeEncodeError:
        raise FormError("it holds half a character") from None
