"""All incidents."""

from __future__ import annotations

from incidents import training

INCIDENTS = (*training.INCIDENTS,)
