"""Runs of other programs, recorded as they go: each behind an extra of its own."""

from __future__ import annotations


def not_installed(
    error: ModuleNotFoundError, what: str, package: str, install: str, *modules: str
) -> ModuleNotFoundError:
    """What to raise where `package` cannot be imported: a sentence with the command that installs it.

    `what` is what needs it, `modules` what it may be imported as. An import that failed inside of the package, for want
    of another one, is `error` itself.
    """
    if error.name not in modules:
        return error
    return ModuleNotFoundError(
        f"{what} needs {package}, which is not installed: pip install {install}.", name=error.name
    )
