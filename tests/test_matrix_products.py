"""Products of stacks of matrices on a device against numpy in float64, in both tiles and at every kind of edge.

A sum of n products in float32, in whatever order, is at most n · 2⁻²⁴ · Σ|p·q| off (Higham 2002, §3.1), and n + 2
roundings with a factor and an addend.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from inspector.gpu.device import Gpu
from inspector.gpu.pipelines import Pipelines
from inspector.plan import Access

F32 = npt.NDArray[np.float32]

SLOTS: tuple[tuple[int, Access], ...] = (
    (0, "read"), (1, "read"), (2, "read"), (3, "read_write"), (4, "uniform"), (5, "uniform"), (6, "uniform"),
)  # fmt: skip
SHAPES = [(1, 1, 1), (3, 5, 2), (64, 64, 16), (65, 63, 17), (130, 129, 33), (4, 260, 100), (200, 7, 1)]
each_tile = pytest.mark.parametrize("tile", [64, 128])


def padded(stack: F32) -> F32:
    """Rows of whole vec4s, filled up with zeros."""
    return np.pad(stack, ((0, 0), (0, 0), (0, -stack.shape[2] % 4)))


def run(
    gpu: Gpu, tile: int, entry_point: str, left: F32, right: F32, addend: F32 | None, shape: tuple[int, int, int],
    **constants: float,
) -> F32:  # fmt: skip
    """The result as it lies in memory, float32[count, rows, width]."""
    rows, columns, _ = shape
    count, width = len(left), -(-columns // 4) * 4
    pipelines = Pipelines(gpu)
    pipeline = pipelines.get(
        f"optimizers/matrix/products_{tile}", entry_point, SLOTS, tuple(constants.items())
    )
    made: list[Any] = []
    for values in (left, right, np.zeros((count, rows, width), np.float32) if addend is None else addend):
        data = padded(values)
        made.append(gpu.storage("factor", data.nbytes))
        gpu.write(made[-1], 0, data)
    nbytes = count * rows * width * 4
    made.append(gpu.storage("result", nbytes))
    # What was there before must not show.
    gpu.write(made[-1], 0, np.full(count * rows * width, np.nan, np.float32))
    ranges = [(buffer, 0, buffer.size) for buffer in made]
    for value in shape:
        made.append(gpu.uniform("size", 16))
        gpu.write(made[-1], 0, np.array([value], np.uint32))
        ranges.append((made[-1], 0, 4))
    encoder = gpu.encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline)
    compute.set_bind_group(0, pipelines.bind(SLOTS, ranges))
    compute.dispatch_workgroups(-(-columns // tile), -(-rows // tile), count)
    compute.end()
    found = gpu.read(made[3], 0, nbytes, encoder).view(np.float32).reshape(count, rows, width)
    for buffer in made:
        gpu.release(buffer)
    return found


def normal(*shape: int, seed: int = 0) -> F32:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def assert_near(found: F32, left: F32, right: F32, alpha: float, addend: F32 | None, beta: float) -> None:
    """`left` count x rows x inner, `right` count x inner x columns."""
    columns, inner = right.shape[2], left.shape[2]
    p, q = left.astype(np.float64), right.astype(np.float64)
    wanted, size = alpha * (p @ q), abs(alpha) * (np.abs(p) @ np.abs(q))
    if addend is not None:
        wanted, size = wanted + beta * addend.astype(np.float64), size + abs(beta) * np.abs(addend)
    off = np.abs(found[:, :, :columns] - wanted)
    assert (off <= (inner + 2) * 2.0**-24 * size).all()
    assert not found[:, :, columns:].view(np.uint32).any()


@pytest.mark.gpu
@each_tile
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("left_as_is", [False, True])
@pytest.mark.parametrize("right_transposed", [False, True])
def test_a_product_of_any_shape(
    gpu: Gpu, tile: int, shape: tuple[int, int, int], left_as_is: bool, right_transposed: bool
) -> None:
    rows, columns, inner = shape
    left, right, addend = normal(3, rows, inner), normal(3, inner, columns), normal(3, rows, columns, seed=1)
    found = run(
        gpu, tile, "product",
        left if left_as_is else left.transpose(0, 2, 1), right.transpose(0, 2, 1) if right_transposed else right,
        addend, shape, LEFT_AS_IS=float(left_as_is), RIGHT_TRANSPOSED=float(right_transposed), ALPHA=1.5, BETA=-0.5,
    )  # fmt: skip
    assert_near(found, left, right, 1.5, addend, -0.5)


@pytest.mark.gpu
@each_tile
@pytest.mark.parametrize(("n", "inner"), [(1, 3), (5, 2), (64, 64), (131, 70), (257, 20)])
@pytest.mark.parametrize("as_is", [False, True])
def test_a_matrix_times_its_transpose_is_symmetric_to_the_bit(
    gpu: Gpu, tile: int, n: int, inner: int, as_is: bool
) -> None:
    x = normal(2, n, inner)
    kept = x if as_is else x.transpose(0, 2, 1)
    found = run(
        gpu, tile, "gram", kept, kept, None, (n, n, inner),
        LEFT_AS_IS=float(as_is), RIGHT_TRANSPOSED=float(as_is),
    )  # fmt: skip
    assert_near(found, x, x.transpose(0, 2, 1), 1.0, None, 0.0)
    assert np.array_equal(found[:, :, :n], found[:, :, :n].transpose(0, 2, 1))


@pytest.mark.gpu
@each_tile
@pytest.mark.parametrize("n", [1, 6, 64, 133])
def test_a_polynomial_of_a_symmetric_matrix_is_symmetric_to_the_bit(gpu: Gpu, tile: int, n: int) -> None:
    half = normal(2, n, n)
    a = (half + half.transpose(0, 2, 1)).astype(np.float32)
    found = run(gpu, tile, "symmetric_product", a, a, a, (n, n, n), ALPHA=2.0315, BETA=-4.775)
    assert_near(found, a, a, float(np.float32(2.0315)), a, float(np.float32(-4.775)))
    assert np.array_equal(found[:, :, :n], found[:, :, :n].transpose(0, 2, 1))


@pytest.mark.gpu
@each_tile
def test_the_same_factors_give_the_same_bits(gpu: Gpu, tile: int) -> None:
    left, right = normal(2, 70, 90), normal(2, 90, 66)
    found = [
        run(gpu, tile, "product", left, right, None, (70, 66, 90), LEFT_AS_IS=1.0).tobytes() for _ in range(2)
    ]
    assert found[0] == found[1]
