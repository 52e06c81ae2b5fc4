"""The built-in live model: a small Llama-shaped character model that trains on Python's own source files.

Read from top to bottom: configuration, text, the operations with their gradients, the model, the source.

The architecture is that of LLaMA (Touvron et al. 2023): pre-norm blocks of attention and feed-forward with
RMSNorm (Zhang & Sennrich 2019), rotary positions (RoPE, Su et al. 2021) and SwiGLU (Shazeer 2020), no biases,
the head tied to the embedding (Press & Wolf 2017). `autograd` chains the operations; each is fused and brings
its own gradient, because a step has to take a few milliseconds on a laptop's CPU.
"""

from __future__ import annotations

import ctypes
import math
import os
import sysconfig
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.schedule import Schedule
from inspector.sources.base import ReadWeights
from inspector.stepping import HostGradients, HostState

FloatArray = npt.NDArray[np.floating[Any]]
ComplexArray = npt.NDArray[np.complexfloating[Any, Any]]
FloatType = np.dtype[np.floating[Any]]
Grads = tuple[FloatArray, ...]
Tokens = npt.NDArray[np.uint8]

# ------------------------------------------------------------------------------------------ configuration

_LARGEST = {
    "width": 4096,
    "layers": 64,
    "heads": 256,
    "context": 4096,
    "rows": 1024,
    "ffn": 16384,
    "seed": 2**63 - 1,
}
_MAX_ELEMENTS = 200_000_000
"""Of all params together, and of all intermediate values of one step: 0.8 GB in float32."""


@dataclass(frozen=True, slots=True)
class CharLmConfig:
    """Sizes of the model and of its batches. Raises UsageError for sizes that make no model.

    `context` is characters a row, `rows` rows a batch, `ffn` the inner width of the feed-forward part.
    `seed` chooses the initial weights, the batches and the order of the text.
    """

    width: int = 64
    layers: int = 2
    heads: int = 4
    context: int = 64
    rows: int = 8
    ffn: int = 172
    seed: int = 0

    def __post_init__(self) -> None:
        for name, limit in _LARGEST.items():
            value, least = getattr(self, name), 0 if name == "seed" else 1
            if not least <= value <= limit:
                raise UsageError(
                    f"charlm cannot have {name}={value}: give a whole number from {least} to {limit}."
                )
        if self.width % self.heads:
            raise UsageError(
                f"charlm cannot share width={self.width} among heads={self.heads}: "
                "make width a multiple of heads."
            )
        if self.head_size % 2:
            raise UsageError(
                f"charlm cannot rotate heads of odd size {self.head_size}: "
                "make width an even multiple of heads."
            )
        elements = max(self.elements, self.intermediates)
        if elements > _MAX_ELEMENTS:
            raise UsageError(
                f"charlm would hold {elements:,} numbers in memory: "
                f"make its sizes smaller, {_MAX_ELEMENTS:,} is the limit."
            )

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads

    @property
    def elements(self) -> int:
        """Number of elements of all params."""
        layer = 4 * self.width**2 + 3 * self.width * self.ffn + 2 * self.width
        return (len(VOCABULARY) + 1) * self.width + self.layers * layer

    @property
    def intermediates(self) -> int:
        """Roughly the number of intermediate values that one step keeps for its backward pass."""
        layer = 9 * self.width + 3 * self.ffn + self.heads * self.context
        return self.rows * self.context * (self.layers * layer + 2 * len(VOCABULARY))

    @classmethod
    def from_text(cls, text: str) -> CharLmConfig:
        """`width=128,layers=4,…`, any of the fields in any order, empty for the default; else UsageError."""
        values: dict[str, int] = {}
        for option in text.split(",") if text else ():
            key, _, value = (part.strip() for part in option.partition("="))
            if key not in _LARGEST:
                raise UsageError(
                    f"charlm has no option {key!r}: write NAME=NUMBER with one of {', '.join(_LARGEST)}."
                )
            if key in values:
                raise UsageError(f"charlm is given {key} twice: give it once.")
            try:
                values[key] = int(value)
            except ValueError:
                raise UsageError(f"charlm cannot have {key}={value}: give a whole number.") from None
        return cls(**values)

    def __str__(self) -> str:
        """The text that `from_text` reads back: the fields that differ from their default."""
        changed = ((f.name, getattr(self, f.name), f.default) for f in fields(self))
        return ",".join(f"{name}={value}" for name, value, default in changed if value != default)


# --------------------------------------------------------------------------------------------------- text

VOCABULARY = "\n" + "".join(map(chr, range(0x20, 0x7F))) + "\N{REPLACEMENT CHARACTER}"
"""A token is an index into this: newline, printable ASCII, and one symbol for every other character."""

_OTHER = len(VOCABULARY) - 1
_TOKEN_OF_BYTE = np.full(256, _OTHER, dtype=np.uint8)
_TOKEN_OF_BYTE[[ord(c) for c in VOCABULARY[:_OTHER]]] = np.arange(_OTHER)

TEXT_BYTES = 4_000_000
"""As much text is read; 1,500 default steps see a fifth of it."""

_SKIPPED_FOLDERS = {"test", "tests", "idle_test", "__pycache__", "site-packages", "dist-packages"}


def encode(text: bytes) -> Tokens:
    """UTF-8 text as tokens, one a character, without carriage returns: line ends are the same anywhere."""
    raw = np.frombuffer(text, dtype=np.uint8)
    continues_a_character = (raw & 0xC0) == 0x80
    tokens: Tokens = _TOKEN_OF_BYTE[raw[~continues_a_character & (raw != ord("\r"))]]
    return tokens


def decode(tokens: Tokens) -> str:
    """Tokens as text."""
    return "".join(VOCABULARY[token] for token in tokens)


def python_files(folder: Path) -> list[Path]:
    """The Python source files under `folder` in a fixed order, without tests and installed packages."""
    found: list[Path] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS]
        found += (Path(parent, name) for name in names if name.endswith(".py"))
    return sorted(found, key=lambda path: path.relative_to(folder).parts)


def read_text(folder: Path, seed: int, limit: int = TEXT_BYTES) -> Tokens:
    """The source files under `folder`, shuffled by `seed` and joined up to `limit` bytes, as tokens."""
    files = python_files(folder)
    parts: list[bytes] = []
    missing = limit
    for index in np.random.default_rng(seed).permutation(len(files)):
        if missing <= 0:
            break
        try:
            part = files[index].read_bytes()[:missing]
        except OSError as error:
            raise UsageError(f"charlm cannot read its text: {error}. Make the file readable.") from error
        parts.append(part)
        missing -= len(part)
    return encode(b"".join(parts))


# ------------------------------------------------------------------------- operations and their gradients
#
# Each operation is a pair of plain functions. `op(*args)` gives the result; `op_grads(g, result, *args)`
# gives the gradients of the arguments that have one, which come first, from the gradient `g` of the result.
# N is the number of tokens, rows · context; matrices are [in, out]. Results have the dtype of the arguments:
# float32, and float64 in tests.

RMS_EPS = 1e-5


def embed(table: FloatArray, one_hot: FloatArray) -> FloatArray:
    """Rows of the embedding: [V, D] and one-hot tokens [N, V] → [N, D]."""
    rows: FloatArray = table[one_hot.argmax(axis=1)]
    return rows


def embed_grads(g: FloatArray, result: FloatArray, table: FloatArray, one_hot: FloatArray) -> Grads:
    """A matrix product adds up the rows of equal tokens faster than a scatter, and in a fixed order."""
    return (one_hot.T @ g,)


def linear(x: FloatArray, weight: FloatArray) -> FloatArray:
    """[N, in] and [in, out] → [N, out]."""
    return x @ weight


def linear_grads(g: FloatArray, result: FloatArray, x: FloatArray, weight: FloatArray) -> Grads:
    return g @ weight.T, x.T @ g


def rms_norm(x: FloatArray, gain: FloatArray) -> FloatArray:
    """x / √(mean x² + ε) · gain over the last axis: [N, D] and [D] → [N, D]."""
    return x * _inverse_rms(x) * gain


def rms_norm_grads(g: FloatArray, result: FloatArray, x: FloatArray, gain: FloatArray) -> Grads:
    inverse = _inverse_rms(x)
    normed = x * inverse
    from_norm = g * gain
    along_x = np.einsum("nd,nd->n", from_norm, normed)[:, None] / x.shape[1]
    return (from_norm - normed * along_x) * inverse, np.einsum("nd,nd->d", g, normed)


def _inverse_rms(x: FloatArray) -> FloatArray:
    mean_square = np.einsum("nd,nd->n", x, x) / x.shape[1]
    inverse: FloatArray = 1 / np.sqrt(mean_square + RMS_EPS)
    return inverse[:, None]


def rotate(qkv: FloatArray, rotation: ComplexArray) -> FloatArray:
    """Rotary positions: [N, 3·D] with neighbours (2i, 2i+1) as complex numbers, times [context, 3·D/2]."""
    pairs = qkv.view(rotation.dtype).reshape(-1, *rotation.shape)
    rotated: FloatArray = (pairs * rotation).view(qkv.dtype)
    return rotated.reshape(qkv.shape)


def rotate_grads(g: FloatArray, result: FloatArray, qkv: FloatArray, rotation: ComplexArray) -> Grads:
    return (rotate(g, rotation.conj()),)


@lru_cache(maxsize=8)
def rotation_table(context: int, heads: int, head_size: int, dtype: FloatType) -> ComplexArray:
    """e^(iθ) by position and pair, θ = position · 10000^(-2i / head size), for q, k and v side by side.

    q is scaled by 1/√(head size) on the way, which attention asks for; v is left as it is. [context, 3·D/2].
    """
    frequency = 10000.0 ** (-np.arange(0, head_size, 2) / head_size)
    turn = np.exp(1j * np.arange(context)[:, None] * np.tile(frequency, heads))
    table = np.concatenate([turn / np.sqrt(head_size), turn, np.ones_like(turn)], axis=1)
    table = table.astype(np.result_type(dtype, np.complex64))
    table.setflags(write=False)
    return table


def attention_weights(qkv: FloatArray, context: int, heads: int) -> FloatArray:
    """Causal softmax of q·k: rotated qkv [N, 3·D] → [rows, heads, context, context]."""
    q, k, _ = _split_heads(qkv, context, heads)
    scores = q @ k.swapaxes(-1, -2)
    scores += _causal_mask(context, qkv.dtype)
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


def attention_weights_grads(
    g: FloatArray, result: FloatArray, qkv: FloatArray, context: int, heads: int
) -> Grads:
    q, k, _ = _split_heads(qkv, context, heads)
    scores = g - np.einsum("rhqk,rhqk->rhq", g, result)[..., None]
    scores *= result
    grads = np.zeros_like(qkv)
    for_q, for_k, _ = _split_heads(grads, context, heads)
    np.matmul(scores, k, out=for_q)
    np.matmul(scores.swapaxes(-1, -2), q, out=for_k)
    return (grads,)


def weighted_values(weights: FloatArray, qkv: FloatArray) -> FloatArray:
    """What every head reads: weights [rows, heads, context, context] and qkv [N, 3·D] → [N, D]."""
    _, heads, context, _ = weights.shape
    v = _split_heads(qkv, context, heads)[2]
    out = np.empty((qkv.shape[0], qkv.shape[1] // 3), dtype=qkv.dtype)
    np.matmul(weights, v, out=_by_head(out, context, heads))
    return out


def weighted_values_grads(g: FloatArray, result: FloatArray, weights: FloatArray, qkv: FloatArray) -> Grads:
    _, heads, context, _ = weights.shape
    v = _split_heads(qkv, context, heads)[2]
    g_heads = _by_head(g, context, heads)
    grads = np.zeros_like(qkv)
    np.matmul(weights.swapaxes(-1, -2), g_heads, out=_split_heads(grads, context, heads)[2])
    return g_heads @ v.swapaxes(-1, -2), grads


def _by_head(x: FloatArray, context: int, heads: int) -> FloatArray:
    """A view of [N, D] as [rows, heads, context, head size]."""
    return x.reshape(-1, context, heads, x.shape[1] // heads).swapaxes(1, 2)


def _split_heads(qkv: FloatArray, context: int, heads: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Views of q, k and v, each [rows, heads, context, head size]."""
    head_size = qkv.shape[1] // (3 * heads)
    q, k, v = qkv.reshape(-1, context, 3, heads, head_size).transpose(2, 0, 3, 1, 4)
    return q, k, v


@lru_cache(maxsize=8)
def _causal_mask(context: int, dtype: FloatType) -> FloatArray:
    mask = np.triu(np.full((context, context), -np.inf, dtype=dtype), 1)
    mask.setflags(write=False)
    return mask


def swiglu(gate_up: FloatArray) -> FloatArray:
    """silu(gate) · up: gate and up side by side [N, 2·F] → [N, F]."""
    gate, up = np.split(gate_up, 2, axis=1)
    return gate * _sigmoid(gate) * up


def swiglu_grads(g: FloatArray, result: FloatArray, gate_up: FloatArray) -> Grads:
    gate, up = np.split(gate_up, 2, axis=1)
    sigmoid = _sigmoid(gate)
    silu = gate * sigmoid
    grads = np.empty_like(gate_up)
    for_gate, for_up = np.split(grads, 2, axis=1)
    np.multiply(g, silu, out=for_up)
    np.multiply(g * up, sigmoid + silu * (1 - sigmoid), out=for_gate)
    return (grads,)


def _sigmoid(x: FloatArray) -> FloatArray:
    result: FloatArray = 1 / (1 + np.exp(-x))
    return result


def tied_head(x: FloatArray, table: FloatArray) -> FloatArray:
    """Logits from the embedding: [N, D] and [V, D] → [N, V]."""
    return x @ table.T


def tied_head_grads(g: FloatArray, result: FloatArray, x: FloatArray, table: FloatArray) -> Grads:
    return g @ table, g.T @ x


def cross_entropy(logits: FloatArray, targets: Tokens) -> np.float64:
    """-log softmax at the targets [N], in the dtype of the logits [N, V]; their mean in float64, in nats."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(shifted).sum(axis=1))
    losses = log_sum - shifted[np.arange(targets.size), targets]
    return np.float64(losses.mean(dtype=np.float64))


def cross_entropy_grads(g: np.float64, result: np.float64, logits: FloatArray, targets: Tokens) -> Grads:
    grads = logits - logits.max(axis=1, keepdims=True)
    np.exp(grads, out=grads)
    grads /= grads.sum(axis=1, keepdims=True)
    grads[np.arange(targets.size), targets] -= 1
    grads *= float(g) / targets.size
    return (grads,)


def add(x: FloatArray, y: FloatArray) -> FloatArray:
    """The residual connection."""
    return x + y


def add_grads(g: FloatArray, result: FloatArray, x: FloatArray, y: FloatArray) -> Grads:
    return g, g


Function = Callable[..., Any]


class Operations(NamedTuple):
    """The operations the model is written in: the plain functions, or the same as autograd primitives."""

    embed: Function
    linear: Function
    rms_norm: Function
    rotate: Function
    attention_weights: Function
    weighted_values: Function
    swiglu: Function
    add: Function
    tied_head: Function
    cross_entropy: Function


PLAIN = Operations(
    embed, linear, rms_norm, rotate, attention_weights, weighted_values, swiglu, add, tied_head, cross_entropy
)
GRADS = Operations(
    embed_grads,
    linear_grads,
    rms_norm_grads,
    rotate_grads,
    attention_weights_grads,
    weighted_values_grads,
    swiglu_grads,
    add_grads,
    tied_head_grads,
    cross_entropy_grads,
)


@cache
def differentiable() -> Operations:
    """The operations as autograd primitives; imported on first use, for it would slow down every start."""
    from autograd.extend import defvjp_argnums, primitive

    def with_grads(operation: Function, grads: Function) -> Function:
        def backward_of(
            argnums: Sequence[int], result: Any, args: Sequence[Any], _: dict[str, Any]
        ) -> Function:
            def backward(g: Any) -> list[Any]:
                of_args = grads(g, result, *args)
                return [of_args[argnum] for argnum in argnums]

            return backward

        traced: Function = primitive(operation)
        defvjp_argnums(traced, backward_of)
        return traced

    return Operations(*map(with_grads, PLAIN, GRADS))


# -------------------------------------------------------------------------------------------------- model


def make_params(config: CharLmConfig) -> tuple[Param, ...]:
    """The params in the order of the forward pass; matrices are [in, out], the embedding [V, D]."""
    width, ffn = config.width, config.ffn
    params = [Param("embed.weight", (len(VOCABULARY), width))]
    for layer in range(config.layers):
        params += [
            Param(f"h.{layer}.attn_norm.weight", (width,)),
            Param(f"h.{layer}.attn.qkv.weight", (width, 3 * width)),
            Param(f"h.{layer}.attn.out.weight", (width, width)),
            Param(f"h.{layer}.ffn_norm.weight", (width,)),
            Param(f"h.{layer}.ffn.gate_up.weight", (width, 2 * ffn)),
            Param(f"h.{layer}.ffn.down.weight", (ffn, width)),
        ]
    return (*params, Param("norm.weight", (width,)))


def initial_weights(config: CharLmConfig) -> dict[str, F32Array]:
    """Norm gains are 1, all else is normal, with the standard deviations that trained best of those tried.

    These are 0.8/√in for a matrix, that by √(2·layers) less where a residual branch ends (as in GPT-2), and
    0.64/√width for the embedding: small enough that the first loss is near ln V, the loss of knowing nothing.
    """
    rng = np.random.default_rng([config.seed, 0])
    weights: dict[str, F32Array] = {}
    for param in make_params(config):
        if len(param.shape) == 1:
            weights[param.name] = np.ones(param.shape, dtype=np.float32)
            continue
        std = 0.8 / math.sqrt(param.shape[0])
        if param.name == "embed.weight":
            std = 0.64 / math.sqrt(config.width)
        elif param.name.endswith(("attn.out.weight", "ffn.down.weight")):
            std /= math.sqrt(2 * config.layers)
        weights[param.name] = rng.standard_normal(param.shape, dtype=np.float32) * np.float32(std)
    return weights


def logits(
    ops: Operations,
    config: CharLmConfig,
    weights: Mapping[str, FloatArray],
    one_hot: FloatArray,
    context: int,
) -> FloatArray:
    """The forward pass: one-hot tokens [N, V] in rows of `context` → scores of the next character [N, V]."""
    rotation = rotation_table(context, config.heads, config.head_size, one_hot.dtype)
    x = ops.embed(weights["embed.weight"], one_hot)
    for layer in range(config.layers):
        w = {name: weights[f"h.{layer}.{name}.weight"] for name in _LAYER_WEIGHTS}
        qkv = ops.rotate(ops.linear(ops.rms_norm(x, w["attn_norm"]), w["attn.qkv"]), rotation)
        attended = ops.weighted_values(ops.attention_weights(qkv, context, config.heads), qkv)
        x = ops.add(x, ops.linear(attended, w["attn.out"]))
        gated = ops.swiglu(ops.linear(ops.rms_norm(x, w["ffn_norm"]), w["ffn.gate_up"]))
        x = ops.add(x, ops.linear(gated, w["ffn.down"]))
    scores: FloatArray = ops.tied_head(ops.rms_norm(x, weights["norm.weight"]), weights["embed.weight"])
    return scores


_LAYER_WEIGHTS = ("attn_norm", "attn.qkv", "attn.out", "ffn_norm", "ffn.gate_up", "ffn.down")


def loss_and_gradients(
    config: CharLmConfig, weights: Mapping[str, FloatArray], batch: Tokens
) -> tuple[float, dict[str, FloatArray]]:
    """Mean loss in nats a character and its gradient by param name, of a batch [rows, context + 1].

    Grads have the shape and dtype of the weights. Weights that are not finite give NaN, no warning.
    """
    from autograd import make_vjp  # here for the reason given in differentiable()

    ops = differentiable()
    context = batch.shape[1] - 1
    dtype = weights["embed.weight"].dtype
    one_hot = _one_hot(batch[:, :-1], dtype)
    targets = batch[:, 1:].ravel()

    def loss_of(traced: Mapping[str, FloatArray]) -> Any:
        return ops.cross_entropy(logits(ops, config, traced, one_hot, context), targets)

    with np.errstate(all="ignore"), one_blas_thread():
        backward, loss = make_vjp(loss_of)(dict(weights))
        gradients: dict[str, FloatArray] = backward(np.float64(1))
    return float(loss), gradients


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keeps matrix products on the thread that asks for them, where numpy brings OpenBLAS.

    OpenBLAS's threads wait for each other by spinning, and matrices this small gain nothing from them. While
    other programs had both cores of a machine, as a software GPU driver may, a step took up to 320 ms with
    them and about 20 ms without.

    How many there are holds for the whole process: while several threads are in here, the last puts it back.
    """
    openblas = _openblas()
    if openblas is None:
        yield
        return
    _inside.enter(openblas)
    try:
        yield
    finally:
        _inside.leave(openblas)


class _Inside:
    """How many threads want OpenBLAS to have one thread, and how many it had before the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._before = 1

    def enter(self, openblas: ctypes.CDLL) -> None:
        with self._lock:
            if not self._count:
                self._before = openblas.scipy_openblas_get_num_threads64_()
                openblas.scipy_openblas_set_num_threads64_(1)
            self._count += 1

    def leave(self, openblas: ctypes.CDLL) -> None:
        with self._lock:
            self._count -= 1
            if not self._count:
                openblas.scipy_openblas_set_num_threads64_(self._before)


_inside = _Inside()


@cache
def _openblas() -> ctypes.CDLL | None:
    """The OpenBLAS in numpy's wheels, already loaded; None where numpy was built with another library."""
    package = Path(np.__file__).parent
    for path in (*package.parent.glob("numpy.libs/*openblas*"), *package.glob(".dylibs/*openblas*")):
        library = ctypes.CDLL(str(path))
        if hasattr(library, "scipy_openblas_set_num_threads64_"):
            return library
    return None


def _one_hot(tokens: Tokens, dtype: FloatType) -> FloatArray:
    return np.eye(len(VOCABULARY), dtype=dtype)[tokens.ravel()]


# ------------------------------------------------------------------------------------------------- source

DEFAULT_CONFIG = CharLmConfig()
DEFAULT_HYPER = Hyper(lr=3e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, max_grad_norm=1.0)
DEFAULT_SCHEDULE = Schedule(warmup=100)


class CharLm:
    """The live model as a source: every step is a forward and backward pass on the CPU, in float32.

    The batch of a step depends on the seed and the step alone, so a step taken twice gives the same bits.
    Raises UsageError where Python's standard library has no source files to train on.
    """

    closed_loop = True

    def __init__(self, config: CharLmConfig = DEFAULT_CONFIG, *, schedule: Schedule | None = None) -> None:
        self.config = config
        self.schedule = DEFAULT_SCHEDULE if schedule is None else schedule
        self.hyper = DEFAULT_HYPER
        self.params = make_params(config)
        self.last_step: int | None = None
        self._folder = Path(sysconfig.get_paths()["stdlib"])
        if next(self._folder.glob("*.py"), None) is None:
            raise UsageError(_no_text(self._folder))

    @classmethod
    def from_text(cls, spec: str) -> CharLm:
        """`charlm` or `charlm:width=128,layers=4,…` with fields of CharLmConfig; else UsageError."""
        kind, colon, options = spec.strip().partition(":")
        if kind != "charlm" or (colon and not options):
            raise UsageError(
                f"{spec!r} is not a live model: write charlm or, say, charlm:width=128,layers=4."
            )
        return cls(CharLmConfig.from_text(options))

    @property
    def name(self) -> str:
        """As on the command line: `charlm` and the sizes that differ from the default."""
        options = str(self.config)
        return f"charlm:{options}" if options else "charlm"

    @property
    def description(self) -> str:
        """One line for people."""
        c = self.config
        return (
            f"Llama-shaped character model: {c.layers} layers of width {c.width}, {c.elements:,} elements, "
            f"batches of {c.rows} rows of {c.context} characters of Python's standard library"
        )

    def initial_state(self) -> HostState:
        """Initial weights drawn from the seed; m and v start at zero."""
        return HostState({name: w.ravel() for name, w in initial_weights(self.config).items()}, {}, {})

    def gradients(self, step: int, read_weights: ReadWeights) -> HostGradients:
        """Grads of `step`'s batch at the weights of now; the loss is in nats a character."""
        loss, gradients = loss_and_gradients(self.config, read_weights(), self.batch(step))
        return HostGradients({name: _flat(g) for name, g in gradients.items()}, loss)

    def batch(self, step: int) -> Tokens:
        """The characters of a step: uint8 [rows, context + 1], each row a random place in the text."""
        length = self.config.context + 1
        starts = np.random.default_rng([self.config.seed, step]).integers(
            0, self._text.size - length, size=self.config.rows, endpoint=True
        )
        rows: Tokens = self._text[starts[:, None] + np.arange(length)]
        return rows

    def sample(self, weights: Mapping[str, F32Array], count: int, seed: int = 0) -> str:
        """`count` characters that the model writes after a newline, drawn by their probability.

        Weights that are not finite write only the symbol for unknown characters.
        """
        rng = np.random.default_rng(seed)
        tokens = np.zeros(count + 1, dtype=np.uint8)
        for at in range(1, count + 1):
            seen = tokens[max(0, at - self.config.context) : at]
            with np.errstate(all="ignore"):
                scores = logits(PLAIN, self.config, weights, _one_hot(seen, np.dtype(np.float32)), seen.size)[
                    -1
                ]
                cumulative = np.exp(scores.astype(np.float64) - scores.max()).cumsum()
                drawn = np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")
                tokens[at] = min(drawn, _OTHER)
        return decode(tokens[1:])

    @cached_property
    def _text(self) -> Tokens:
        """Read when the first batch is made, which keeps the start quick."""
        text = read_text(self._folder, self.config.seed)
        if text.size <= self.config.context:
            raise UsageError(_no_text(self._folder))
        return text


def _no_text(folder: Path) -> str:
    return (
        f"charlm trains on the source files of Python's standard library, and {folder} has too few of them: "
        "use a Python installed with its sources, or start with another source such as synthetic:1000000."
    )


def _flat(gradient: FloatArray) -> F32Array:
    return np.ascontiguousarray(gradient, dtype=np.float32).ravel()
