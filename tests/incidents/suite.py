"""All incidents."""

from __future__ import annotations

from incidents import damage, settings, training

INCIDENTS = (*training.INCIDENTS, *settings.INCIDENTS, *damage.INCIDENTS)
