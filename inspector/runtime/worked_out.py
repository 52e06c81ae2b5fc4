"""What was worked out beside the run that is open, and how far it is that still goes on."""

from __future__ import annotations

from inspector.comparison import Comparison
from inspector.runtime.snapshots import Comparing
from inspector.runtime.weighing import Policies
from inspector.stepping import DeviceInfo


class WorkedOut:
    """Kept until another run is opened, but for the bandwidth, which is the device's."""

    def __init__(self) -> None:
        self.comparing: Comparing | None = None
        self.comparison: Comparison | None = None
        self.policies = Policies()
        self.copy: tuple[DeviceInfo, float] | None = None
        """A device, and how many GB/s a plain copy reaches there."""

    def forget(self) -> None:
        """Another run: nothing that came of the old one may be shown."""
        self.comparison = None
        self.policies = Policies()

    def copy_gbps(self, device: DeviceInfo) -> float | None:
        """As it was measured, None where it was not."""
        return self.copy[1] if self.copy and self.copy[0] == device else None
