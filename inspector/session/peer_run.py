"""A stretch of steps between two captured states run on in numpy, in the roundings of the program that recorded it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inspector.floats import F32Array
from inspector.optimizers.adamw.peers import PEERS, Lanes, Peer
from inspector.session.reader import Session
from inspector.session.records import RecordedStep
from inspector.session.verdicts import given_of
from inspector.stepping import HostState


class PeerRun:
    """From the captured state after `state.finished_steps`: what the peer makes of each step, by param.

    `peaks` are the largest magnitudes of w, m and v on the way, whose units those of a difference at its end are: m
    passes through 0 again and again.
    """

    def __init__(self, session: Session, state: HostState, peer: str | None) -> None:
        self._session = session
        self.peer: Peer = next((p for p in PEERS if p.key == peer), PEERS[0])
        self.step = state.finished_steps
        self.lanes: dict[str, Lanes] = {}
        self.peaks: dict[str, Lanes] = {}
        for param in session.about.params:
            zero = np.zeros(param.numel, np.float32)
            lanes = (state.w[param.name], state.m.get(param.name, zero), state.v.get(param.name, zero))
            self.lanes[param.name] = Lanes(*(np.ravel(lane) for lane in lanes))
            self.peaks[param.name] = Lanes(*(np.abs(np.ravel(lane)) for lane in lanes))

    def run(self, recorded: RecordedStep, gradients: Mapping[str, F32Array], scale: float) -> None:
        """The next step."""
        state = self.state()
        for number in range(self._session.about.params_in(recorded.step)):
            name = self._session.about.params[number].name
            given, settings = given_of(self._session, recorded, number, state, gradients.get(name), scale)
            if settings.idle:
                continue
            made = self.lanes[name] = self.peer.step(given)
            peak = self.peaks[name]
            pairs = (peak.w, made.w), (peak.m, made.m), (peak.v, made.v)
            self.peaks[name] = Lanes(*(np.fmax(a, np.abs(b)) for a, b in pairs))
        self.step = recorded.step

    def state(self) -> HostState:
        """As it is now."""
        w, m, v = (
            {name: getattr(lanes, lane) for name, lanes in self.lanes.items()} for lane in ("w", "m", "v")
        )
        return HostState(w, m, v, self.step)
