"""Weights and optimizer states that other programs saved."""
