"""Runs of other programs, recorded as they go: each behind an extra of its own."""
