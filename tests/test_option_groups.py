"""Options that commands have in common: one parameter of the command, options of their own on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from inspector.cli.option_groups import with_options_apart

Rate = Annotated[float, typer.Option("--rate", help="How fast.")]
Name = Annotated[str, typer.Option(help="Which.")]


@dataclass(frozen=True, slots=True)
class Shared:
    """Two options."""

    name: Name = "a"
    rate: Rate = 0.5


def command(
    *,
    context: typer.Context,
    source: Annotated[str, typer.Argument()],
    shared: Shared,
    last: Annotated[bool, typer.Option("--last")] = False,
) -> int:
    """What it is for."""
    given = context.get_parameter_source("rate")
    assert given is not None
    typer.echo(f"{source} {shared.name} {shared.rate} {last} {given.name}")
    return 0


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(with_options_apart(command))
    return made


def test_a_group_is_its_options_in_its_place() -> None:
    parameters = signature(with_options_apart(command)).parameters
    assert list(parameters) == ["context", "source", "name", "rate", "last"]
    assert (parameters["rate"].annotation, parameters["rate"].default) == (Rate, 0.5)
    assert with_options_apart(command).__doc__ == "What it is for."


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["x"], "x a 0.5 False DEFAULT\n"),
        (["x", "--rate", "2", "--name", "b", "--last"], "x b 2.0 True COMMANDLINE\n"),
    ],
)
def test_the_command_is_called_with_the_group_made_of_what_was_typed(
    app: typer.Typer, words: list[str], told: str
) -> None:
    assert CliRunner().invoke(app, words).stdout == told


def test_a_command_without_groups_is_as_it_was() -> None:
    def plain(*, name: Name, rate: Rate = 1.0) -> int:
        return len(name)

    made = with_options_apart(plain)
    assert list(signature(made).parameters) == ["name", "rate"]
    assert made(name="abc", rate=1.0) == 3


def test_an_option_that_the_command_has_itself_is_not_taken_from_it_by_a_group() -> None:
    def own(*, rate: Annotated[str, typer.Option("--rate")] = "fast", shared: Shared) -> int:
        assert shared == Shared(name="abc")
        return len(rate)

    made = with_options_apart(own)
    assert list(signature(made).parameters) == ["rate", "name"]
    assert made(rate="slow", name="abc") == 4
