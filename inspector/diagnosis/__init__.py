"""Findings: rules over the statistics of a step."""
