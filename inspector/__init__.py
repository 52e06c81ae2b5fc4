"""A debugger and profiler for the optimizer step of language-model training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspector.session.reader import Session as Session

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Imported when first asked for: most uses of the package open no session.
    if name == "Session":
        from inspector.session.reader import Session

        return Session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
