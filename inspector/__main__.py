"""`python -m inspector`: the command line."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line and exit with its code."""
    # Ctrl-C simply ends the process: an exception in the middle of the imports, or inside a call that Qt or the
    # driver makes, would be lost or shown as a fault of theirs. What has something to put in order says so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from inspector.cli import run

    raise SystemExit(run())


if __name__ == "__main__":
    main()
