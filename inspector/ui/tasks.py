"""Five things to do with the program, step by step from the start page: what to press, and what is seen then. No Qt.

docs/guide.md has the same words with pictures; tests/test_guide.py presses the keys.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """What to do, keys in backticks, and what is seen then."""

    do: str
    see: str


@dataclass(frozen=True, slots=True)
class Task:
    """`code` is what belongs into a program of the user's; "" for nothing."""

    title: str
    steps: tuple[Step, ...]
    code: str = ""


RECORD_CODE = """\
from inspector.integrations.torch import record

with record(optimizer, "run.session", model=model, capture="flight:8"):
    ...  # the training loop, unchanged"""

TASKS = (
    Task(
        "Step through an update",
        (
            Step(
                "`Alt+0` for the start page; select *Live model* and press `Enter`.",
                "A small character model, stopped in step 1 before its first dispatch: its gradients are in place, "
                "m and v are 0.",
            ),
            Step(
                "`F10` twice.",
                "The pipeline ticks each dispatch that has run. Below it stand gradNorm and clipScale, which the "
                "update is about to read; the map frames what it binds.",
            ),
            Step(
                "`Ctrl+P`, type `h0qkv`, `Enter`; or click the param on the map.",
                "The param is selected everywhere: the values list its elements before and after the last dispatch.",
            ),
            Step(
                "`F10` once more.",
                "adamw_update has run over the params with weight decay: w, m and v have changed (a dot marks "
                "each value that has), and g is zeroed.",
            ),
            Step("`Shift+F10`", "The dispatch is taken back, byte for byte. `F10` would run it again."),
            Step(
                "`F11`; then `F5`, and after some seconds `F5` again.",
                "The rest of the step; then one step after the other, with loss, gradient norm, clip scale and lr "
                "as plots, until it is paused.",
            ),
            Step(
                "`Ctrl+E`",
                "The microscope: one element's update line by line, in float32 as the kernel computes it and in "
                "float64, with the ULP between them, the WGSL beside it, and w, g, m and v over the steps.",
            ),
        ),
    ),
    Task(
        "Record your own training run",
        (
            Step(
                "Put these lines around your training loop in PyTorch, and start the script.",
                "run.session grows beside it, a row a step; the weights come out the same, bit for bit.",
            ),
            Step(
                "`Ctrl+Shift+O`, choose the folder run.session and press `Enter`; or drop it on the window.",
                "The recording opens while it is still being written, with its plots and findings.",
            ),
            Step(
                "`F`",
                "Each step is shown as it is written. The status bar says what became of the script.",
            ),
            Step(
                "`Ctrl+G`, type `5`, `Enter`; or drag along the timeline.",
                "Any step, with its numbers; with its buffers wherever they were captured or can be rebuilt.",
            ),
            Step(
                "Afterwards, on another machine: copy the folder there, or `inspector pack run.session` and copy the "
                "zip file; drop it on the window.",
                "The same run, without the GPU or the framework that made it.",
            ),
        ),
        RECORD_CODE,
    ),
    Task(
        "Stop where it goes wrong",
        (
            Step(
                "`Alt+0`; select the example *nan-gradient* and press `Enter`.",
                "A run whose loss looks healthy throughout.",
            ),
            Step(
                "`Ctrl+F9`, then `F5`",
                "It stops in step 30 before reduce_norm_sq, where `nonfinite > 0` first holds: the line below the "
                "toolbar names the element, which is selected in the values, NaN in g.",
            ),
            Step(
                "`Alt+6`, then `Down` and `Enter`; or click the finding.",
                "The same fault as the diagnosis tells it: evidence, what to try, and where its threshold comes from.",
            ),
            Step(
                "`Y`",
                "What five optimizers that treat NaN differently would each have made of that step.",
            ),
            Step(
                "`Alt+0`; select *Live model* and press `Enter`. `F9`, type `clip_scale < 0.2`, `Enter`; then `F5`.",
                "A condition on any metric, of all params or of some, as in `update_ratio@*.attn.* > 0.01`; what is "
                "typed is completed. It stops in step 1, between the dispatch that works the clip scale out and "
                "those that use it.",
            ),
            Step(
                "Select each breakpoint in the list and press `Delete`.",
                "Nothing stops the next run; they would be kept for the next start of the window.",
            ),
        ),
    ),
    Task(
        "Ask what if",
        (
            Step(
                "`Alt+0`; select the example *diverges* and press `Enter`.",
                "A run whose loss jumps from 4 to 22 in step 29, after updates of many learning rates.",
            ),
            Step(
                "`Alt+5`; in the field β₂ type `0.95` and press `Enter`.",
                "A change of settings, marked on the time axis.",
            ),
            Step(
                "`F7`, then `Enter`",
                "The recorded gradients run again with β₂ 0.95 and are recorded; both runs are then laid under this "
                "one in every plot, dashed and dotted.",
            ),
            Step(
                "`Ctrl+D`, then `Enter`",
                "Both recordings held against each other: where they part first, and each param by how far.",
            ),
            Step(
                "`Ctrl+R`; in the toolbar, behind Form where the window is narrow, choose *single* as *dispatch*; "
                "`F7`, then `Enter`.",
                "The same with one dispatch instead of two. Another clip norm (*max grad norm*), learning rate or "
                "kernel goes the same way.",
            ),
            Step(
                "`Alt+0`; select *Live model* and press `Enter`. `Alt+9`, then `L`, then `F5`.",
                "A second run with 8-bit state takes the same gradients in lockstep: how far its weights drift, and "
                "the errors of m and v by param and by block. `F5` pauses.",
            ),
        ),
    ),
    Task(
        "See what each kernel costs",
        (
            Step(
                "`Alt+0`; select *Live model*, or on a GPU with 4 GB *Reference layout*, and press `Enter`.",
                "The smaller the model, the more of a step is the cost of starting kernels.",
            ),
            Step(
                "`Ctrl+Alt+2`, then `F5`; after some seconds `F5` again.",
                "The layout Profile: median, GB/s and share of the step for each kernel. Steps at low clocks are "
                "counted as cold and left out.",
            ),
            Step(
                "`B`",
                "The bandwidth of a copy on this GPU, and beside each kernel how close it comes to that limit.",
            ),
            Step(
                "`V`, and wait for about half a minute.",
                "This form of the step beside all that differ from it in one factor: kernel, reduce, dispatch, "
                "numerics, fused or not.",
            ),
            Step("`E` or `T`", "The tables as CSV, or the last steps as a trace for ui.perfetto.dev."),
            Step("`Ctrl+Alt+1`", "The layout Step again, with every panel."),
        ),
    ),
)
