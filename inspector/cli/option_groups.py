"""Options that several commands have in common, as one parameter of the command: a dataclass with a field an option."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

Command = Callable[..., int]


def with_options_apart(command: Command) -> Command:
    """`command` as typer takes it: in place of a parameter that is a dataclass stand its fields, an option each.

    A field is annotated as an option is, with its default. The command is called with the dataclass made of them. An
    option that the command has itself is no field's: there the dataclass keeps its default.
    """
    kinds = get_type_hints(command, include_extras=True)
    groups = {
        name: _fields(kind, but=kinds) for name, kind in kinds.items() if dataclasses.is_dataclass(kind)
    }
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name in groups:
            parameters += groups[name]
        else:
            parameters.append(Parameter(name, _BY_NAME, default=parameter.default, annotation=kinds[name]))

    @wraps(command)
    def called(**given: Any) -> int:
        for name, options in groups.items():
            given[name] = kinds[name](**{each.name: given.pop(each.name) for each in options})
        return command(**given)

    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return called


_BY_NAME = Parameter.KEYWORD_ONLY


def _fields(group: Any, *, but: Container[str]) -> list[Parameter]:
    kinds = get_type_hints(group, include_extras=True)
    return [
        Parameter(each.name, _BY_NAME, default=each.default, annotation=kinds[each.name])
        for each in dataclasses.fields(group)
        if each.name not in but
    ]
