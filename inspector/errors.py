"""The one exception whose text is shown to a person as it is."""

from __future__ import annotations


class InspectorError(Exception):
    """A problem explained in one sentence that says what to do; shown once, without a traceback."""


class UsageError(InspectorError):
    """Wrong usage or unusable input (exit code 2)."""


class DeviceLostError(InspectorError):
    """The GPU device is gone: every buffer on it is lost and what was shown from it is stale."""


class OutOfMemoryError(InspectorError):
    """The device could not allocate a buffer; nothing was changed."""
