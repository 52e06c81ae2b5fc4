"""Runs with one planted fault each, and healthy ones: what a diagnosis has to find, and what it must not."""
