"""`python -m inspector`: the command line."""

from __future__ import annotations


def main() -> None:
    """Run the command line and exit with its code."""
    from inspector.cli import run

    raise SystemExit(run())


if __name__ == "__main__":
    main()
