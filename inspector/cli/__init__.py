"""The command line, and the only place that joins the window and the device."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

PROBLEM = 1
USAGE = 2
INTERRUPTED = 130

COMMANDS = (
    "doctor",
    "layout",
    "memory",
    "run",
    "race",
    "sweep",
    "info",
    "pack",
    "replay",
    "diff",
    "diagnose",
    "export",
    "import",
    "explain",
    "policies",
    "report",
    "bench",
    "screenshot",
    "window",
)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code. Problems are told in one sentence on standard error."""
    import typer
    from typer.main import get_command

    from inspector.cli.app import app
    from inspector.errors import InspectorError, UsageError

    words = with_default_command(list(sys.argv[1:] if arguments is None else arguments))
    try:
        result: Any = get_command(app).main(args=words, prog_name="inspector", standalone_mode=False)
    except UsageError as error:
        return _tell(str(error), USAGE)
    except InspectorError as error:
        return _tell(str(error), PROBLEM)
    except _usage_exception() as error:
        return _tell(_sentence(error), USAGE)
    except (typer.Abort, KeyboardInterrupt):
        return _tell("Stopped.", INTERRUPTED)
    except BrokenPipeError:
        # Whoever read the output has left; that is theirs to decide.
        sys.stderr.close()
        return 0
    if result == INTERRUPTED:
        # Some releases of typer turn the interrupt into this code themselves.
        return _tell("Stopped.", INTERRUPTED)
    return int(result) if isinstance(result, int) else 0


def _usage_exception() -> type[Exception]:
    """What typer raises for a wrong option. Newer releases carry click inside, under a private name."""
    import typer

    return next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def _sentence(error: Any) -> str:
    text = " ".join(str(error.format_message()).split())
    parameter = getattr(error, "param", None)
    if text.startswith("Missing parameter") and parameter is not None:
        options = [word for word in parameter.opts if word.startswith("-")]
        text = f"{options[0] if options else parameter.human_readable_name} is missing"
    return f"{text.rstrip('.')}. See 'inspector --help'."


def with_default_command(words: list[str]) -> list[str]:
    """`inspector [SOURCE]` opens the window: put the command `window` where none is named."""
    if any(word in ("--help", "-h", "--version") for word in words[:1]):
        return words
    if words and words[0] in COMMANDS:
        return words
    return ["window", *words]


def _tell(sentence: str, code: int) -> int:
    # A name or path from a file may hold line breaks.
    print(f"inspector: {' '.join(sentence.splitlines())}", file=sys.stderr)
    return code
