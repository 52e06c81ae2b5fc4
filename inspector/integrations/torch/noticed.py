"""What a script does between its backward pass and the step: clipping, and a loss scaler that skips the step.

Both are noticed where they happen, by functions that stand in for PyTorch's own while something is recorded, call those
first, and give back what they gave.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import torch
from torch.nn.utils import clip_grad

Tensor = Any


class Listener(Protocol):
    """Who wants to know. What is raised here must not reach the script: listeners catch their own errors."""

    def clipping(self, params: list[Tensor], norm: Tensor | None) -> None:
        """The gradients of `params` are about to be scaled by what follows from `norm`, None if not known yet."""

    def clipped(self, params: list[Tensor], limit: float, norm: Tensor, kind: float) -> None:
        """The gradients of `params` were just scaled to a norm of `limit` at most; `norm` is of before, of `kind`."""

    def stepped(self, optimizer: Any, step: Callable[[], Any], scaler: Any) -> Any:
        """A loss scaler is asked to step `optimizer`, which `step` does or not."""


_listeners: list[Listener] = []
_replaced: list[tuple[Any, str, Any, Any]] = []
"""Whose attribute was replaced, its name, what was there, and what stands there now."""


def listen(listener: Listener) -> None:
    """Tell `listener` from now on."""
    if not _listeners:
        _put_in_place()
    _listeners.append(listener)


def forget(listener: Listener) -> None:
    """Tell it no more; with the last one PyTorch's functions are put back."""
    with suppress(ValueError):
        _listeners.remove(listener)
    if _listeners:
        return
    while _replaced:
        owner, name, original, mine = _replaced.pop()
        # Somebody else may have replaced it meanwhile; then theirs calls ours, which does nothing any more.
        if getattr(owner, name, None) is mine:
            setattr(owner, name, original)


def _put_in_place() -> None:
    if hasattr(clip_grad, "_clip_grads_with_norm_"):
        # Looked up in the module by clip_grad_norm_, so that it does not matter how a script imported that.
        norms = _NormKinds()
        public = getattr(torch.nn.utils, "clip_grads_with_norm_", None)
        _replace(clip_grad, "_get_total_norm", norms.wrapping)
        _replace(clip_grad, "_clip_grads_with_norm_", lambda original: _clipping(original, norms))
        if public is not None:
            _replace(torch.nn.utils, "clip_grads_with_norm_", lambda original: _clipping(original, norms))
    else:  # Before PyTorch 2.6 it is one function.
        for owner in (clip_grad, torch.nn.utils):
            _replace(owner, "clip_grad_norm_", _clipping_whole)
    _replace(torch.amp.GradScaler, "step", _stepping)


def _replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    original = getattr(owner, name, None)
    if original is None:
        return
    mine = wrap(original)
    setattr(owner, name, mine)
    _replaced.append((owner, name, original, mine))


class _NormKinds:
    """Of which order the norm was that was worked out last."""

    def __init__(self) -> None:
        self._last: tuple[Any, float] | None = None

    def wrapping(self, original: Any) -> Any:
        @functools.wraps(original)
        def total_norm(tensors: Any, norm_type: float = 2.0, *args: Any, **kwargs: Any) -> Any:
            norm = original(tensors, norm_type, *args, **kwargs)
            self._last = norm, float(norm_type)
            return norm

        return total_norm

    def of(self, norm: Any) -> float:
        last, self._last = self._last, None
        return last[1] if last is not None and last[0] is norm else 2.0


def _clipping(original: Any, norms: _NormKinds) -> Any:
    @functools.wraps(original)
    def clip(parameters: Any, max_norm: float, total_norm: Any, *args: Any, **kwargs: Any) -> Any:
        listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        for listener in tuple(_listeners):
            listener.clipping(listed, total_norm)
        given = original(listed, max_norm, total_norm, *args, **kwargs)
        kind = norms.of(total_norm)
        for listener in tuple(_listeners):
            listener.clipped(listed, float(max_norm), total_norm, kind)
        return given

    return clip


def _clipping_whole(original: Any) -> Any:
    @functools.wraps(original)
    def clip(parameters: Any, max_norm: float, norm_type: float = 2.0, *args: Any, **kwargs: Any) -> Any:
        listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        for listener in tuple(_listeners):
            listener.clipping(listed, None)
        norm = original(listed, max_norm, norm_type, *args, **kwargs)
        for listener in tuple(_listeners):
            listener.clipped(listed, float(max_norm), norm, float(norm_type))
        return norm

    return clip


def _stepping(original: Any) -> Any:
    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        def run() -> Any:
            return original(self, optimizer, *args, **kwargs)

        for listener in tuple(_listeners):
            run = functools.partial(listener.stepped, optimizer, run, self)
        return run()

    return step
