"""`inspector export`: what a recording holds, for other programs."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from inspector.byte_sizes import size_text
from inspector.cli.options import interruptible, make_console, print_json
from inspector.errors import UsageError
from inspector.files import check_folder_free, check_writable
from inspector.session.export import write_csv, write_trace
from inspector.session.reader import Session
from inspector.session.tensorboard import write_tensorboard
from inspector.sources.statefile import write_state
from inspector.stepping import GradStats

Format = Literal["csv", "perfetto", "tensorboard", "safetensors"]


def export(path: Path, kind: Format, out: Path, *, step: int | None, json: bool) -> int:
    """Write it and say what was written."""
    if step is not None and kind != "safetensors":
        raise UsageError("--step names the state to write as safetensors; other formats take all steps.")
    check_folder_free(out) if kind == "tensorboard" else check_writable(out)
    with interruptible() as check, Session.open(path) as session:
        if kind == "csv":
            what: dict[str, Any] = {"steps": write_csv(session, out, check=check)}
        elif kind == "perfetto":
            what = {"steps": write_trace(session, out)}
        elif kind == "tensorboard":
            what = asdict(write_tensorboard(session, out, check=check))
        else:
            what = _write_state(session, out, step)
    written = out / what["file"] if kind == "tensorboard" else out
    size = written.stat().st_size
    document = {"session": str(path), "format": kind, "out": str(out), **what, "bytes": size}
    print_json(document) if json else _show(document)
    return 0


def _write_state(session: Session, out: Path, step: int | None) -> dict[str, Any]:
    """The captured state after `step`, the last there is without it, as a state file that runs on from there."""
    keyframes = session.captures("keyframe")
    if not keyframes or (step is not None and step not in keyframes):
        have = ", ".join(f"{k:,}" for k in keyframes[:8]) + (", …" if len(keyframes) > 8 else "")
        there = f"there are states after step {have}" if keyframes else "no state was captured"
        after = "" if step is None else f" after step {step:,}"
        raise UsageError(f"{session.path} has no state{after} to write: {there}.")
    at = keyframes[-1] if step is None else step
    # Of those that had joined the run by then.
    params = session.about.params[: session.about.params_in(at + 1)]
    lanes = {
        lane: {p.name: session.tensor(lane, at, p.name).reshape(-1) for p in params}
        for lane in ("w", "m", "v")
    }
    gradients = at + 1 in session.captures("gradients")
    if gradients:
        lanes["g"] = {p.name: session.tensor("g", at + 1, p.name).reshape(-1) for p in params}
    ran = session.step(at) if at in session.steps else None
    # What the next step ran with, its schedule applied, so that the file runs as the recording did.
    following = session.step(at + 1) if at + 1 in session.steps else ran
    stats = None
    if ran is not None and ran.grad_norm is not None and ran.clip_scale is not None:
        stats = GradStats(ran.grad_norm, ran.clip_scale)
    hyper = following.hyper if following is not None else session.about.hyper
    own = None
    if hyper.per_param is not None:
        own = {p.name: hyper.of_param(i, decays=p.block == "wd") for i, p in enumerate(params)}
        if following is ran and ran is not None:
            # What the last step left out has one step less than the run by now.
            own = {name: replace(each, behind=each.behind + each.idle) for name, each in own.items()}
    states = session.keyframe(at).states
    write_state(out, params, lanes, finished_steps=at, hyper=hyper, stats=stats, own=own, states=states)
    return {"step": at, "params": len(params), "gradients_of_step": at + 1 if gradients else None}


def _show(document: dict[str, Any]) -> None:
    what = (
        f"{document['steps']:,} steps"
        if "steps" in document
        else f"the state after step {document['step']:,}"
    )
    if document.get("gradients_of_step") is not None:
        what += f" and the gradients of step {document['gradients_of_step']:,}"
    if "histogram_steps" in document:
        what += f", params at {document['param_steps']:,} of them and histograms at {document['histogram_steps']:,},"
    text = f"Wrote {what} of {document['session']} to {document['out']}, {size_text(document['bytes'])}."
    make_console().print(text, soft_wrap=True)
