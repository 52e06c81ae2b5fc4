"""Where the params of a run lie on the device: what its stepper was made for, and another made in its place."""

from __future__ import annotations

from collections.abc import Callable

from inspector.errors import InspectorError, UsageError
from inspector.layout import Layout
from inspector.plan import Variant, required_placement
from inspector.progress import EndedError, watched
from inspector.runtime.parts import MakeStepper
from inspector.sources.base import Source
from inspector.stepping import State, Stepper


class Placing:
    """`make` makes another stepper for `source`; without it the params stay where they are, laid out for `laid`."""

    def __init__(self, source: Source, make: MakeStepper | None, laid: Variant) -> None:
        self._source = source
        self.make = make
        self._laid = laid
        self._laid_as: Layout | None = None
        """The recorded layout that the stepper was made for; where the device cannot bind it, its own is another."""

    def fits(self, laid: Variant, layout: Layout | None, now: Layout) -> bool:
        """True where the params, which lie as in `now`, lie as they do for the form `laid`, or in `layout`, as far as
        the device can."""
        if layout is not None and layout is not self._laid_as and layout != now:
            return False
        codecs = {v.codec for v in (laid, self._laid) if v.kernel == "8bit"}
        return required_placement(laid) == required_placement(self._laid) and len(codecs) <= 1

    def exchange(
        self,
        old: Stepper,
        variant: Variant,
        state: State,
        layout: Layout | None,
        took_over: Callable[[Stepper, bool], None],
    ) -> None:
        """Make a stepper that goes on with `state`, laid out as in `layout`, else for `variant`, in place of `old`.

        `took_over` is given it, and True. Where it cannot be made, or a person ends that, it is given one that is as
        `old` was, and False, and the reason is raised. UsageError where none can be made.
        """
        if self.make is None:
            raise UsageError("The params are not laid out for this form of the step: lay them out anew.")
        before = old.plan.variant
        # The old device goes first: two of them may not fit.
        old.close()
        try:
            made = self.make(self._source, variant, state, layout)
        except (InspectorError, EndedError):
            with watched(None):
                back = self.make(self._source, before, state)
                self._laid, self._laid_as = before, None
                took_over(back, False)
            raise
        self._laid, self._laid_as = variant, layout
        took_over(made, True)
