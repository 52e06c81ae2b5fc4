"""Recordings of runs: written while a run goes on, followed, read back, packed."""
