"""All incidents."""

from __future__ import annotations

from incidents import damage, kernels, precision, settings, training

KINDS = {
    "training": training.INCIDENTS,
    "settings": settings.INCIDENTS,
    "state": damage.INCIDENTS,
    "8 bits, half precision": precision.INCIDENTS,
    "kernels": kernels.INCIDENTS,
}
INCIDENTS = tuple(incident for kind in KINDS.values() for incident in kind)
