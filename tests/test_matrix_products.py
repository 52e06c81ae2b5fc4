"""Products of stacks of matrices on a device against numpy in float64, in both tiles and at every kind of edge.

A sum of n products in float32, in whatever order, is at most n · 2⁻²⁴ · Σ|p·q| off (Higham 2002, §3.1), and n + 2
roundings with a factor and an addend. Numbers of two floats are held against numpy's extended precision.
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
EXTENDED = npt.NDArray[np.longdouble]
each_tile = pytest.mark.parametrize("tile", [64, 128])


def padded(stack: F32) -> F32:
    """Rows of whole vec4s, filled up with zeros."""
    return np.pad(stack, ((0, 0), (0, 0), (0, -stack.shape[2] % 4)))


def run(
    gpu: Gpu, tile: int | str, entry_point: str, left: F32, right: F32, addend: F32 | None,
    shape: tuple[int, int, int], *, parts: int = 1, **constants: float,
) -> F32:  # fmt: skip
    """The result as it lies in memory, float32[parts · count, rows, width]."""
    rows, columns, _ = shape
    count, width = len(left), -(-columns // 4) * 4
    pipelines = Pipelines(gpu)
    pipeline = pipelines.get(
        f"optimizers/matrix/products_{tile}", entry_point, SLOTS, tuple(constants.items())
    )
    side = 64 if parts > 1 else int(tile)
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
    compute.dispatch_workgroups(-(-columns // side), -(-rows // side), count // parts)
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


@pytest.mark.gpu
@each_tile
def test_a_long_sum_in_short_ones_rounds_less(gpu: Gpu, tile: int) -> None:
    # All of one sign, as in XXᵀ of a matrix of rank 1: in one run every product meets the whole sum before it.
    left, right = (np.abs(normal(1, *shape)) for shape in ((64, 3001), (3001, 64)))
    exact = left.astype(np.float64) @ right.astype(np.float64)
    off = [
        np.linalg.norm(
            run(gpu, tile, "product", left, right, None, (64, 64, 3001), LEFT_AS_IS=1.0, RUNS=runs) - exact
        )
        for runs in (0.0, 1.0)
    ]
    assert off[1] < off[0] / 3


# --- numbers of two floats


def two_floats(x: EXTENDED) -> F32:
    """The first floats of all matrices, then the second ones."""
    first = x.astype(np.float32)
    return np.concatenate([first, (x - first).astype(np.float32)])


def extended(pairs: F32) -> EXTENDED:
    first, second = np.split(pairs.astype(np.longdouble), 2)
    return np.asarray(first + second)


def fine(*shape: int, seed: int = 0) -> EXTENDED:
    """Normal numbers with about 44 bits, and some far from the others in size."""
    rng = np.random.default_rng([seed, *shape])
    x = (
        rng.standard_normal(shape).astype(np.longdouble)
        + rng.standard_normal(shape) * np.longdouble(2) ** -30
    )
    x[:, ::5] *= np.longdouble(2) ** -12
    x[:, 1::7] = 0
    return extended(two_floats(x))


def assert_as_near(
    found: F32, left: EXTENDED, right: EXTENDED, alpha: float, addend: EXTENDED | None, beta: float
) -> None:
    columns = right.shape[2]
    # np.matmul has no extended precision.
    product = np.stack([np.dot(p, q) for p, q in zip(left, right, strict=True)])
    wanted = alpha * product
    if addend is not None:
        wanted = wanted + beta * addend
    # The leading parts leave products of 2⁻¹⁰ to the second float, whose own rounding is another 2⁻²⁴, and some of it
    # is lost where terms cancel. A float alone could have 2⁻²⁵ at best.
    assert np.abs(extended(found)[:, :, :columns] - wanted).max() <= np.abs(wanted).max() * 2.0**-29
    assert not found[:, :, columns:].view(np.uint32).any()


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("left_as_is", [False, True])
@pytest.mark.parametrize("right_transposed", [False, True])
def test_a_product_in_two_floats(
    gpu: Gpu, shape: tuple[int, int, int], left_as_is: bool, right_transposed: bool
) -> None:
    rows, columns, inner = shape
    left, right, addend = (
        fine(3, rows, inner),
        fine(3, inner, columns, seed=1),
        fine(3, rows, columns, seed=2),
    )
    found = run(
        gpu, "two_floats", "product_two_floats",
        two_floats(left if left_as_is else left.transpose(0, 2, 1)),
        two_floats(right.transpose(0, 2, 1) if right_transposed else right),
        two_floats(addend), shape, parts=2,
        LEFT_AS_IS=float(left_as_is), RIGHT_TRANSPOSED=float(right_transposed), ALPHA=1.0, BETA=3.4445,
    )  # fmt: skip
    assert_as_near(found, left, right, 1.0, addend, float(np.float32(3.4445)))


@pytest.mark.gpu
@pytest.mark.parametrize(("n", "inner"), [(1, 3), (5, 2), (64, 64), (131, 70), (70, 700)])
@pytest.mark.parametrize("as_is", [False, True])
def test_a_matrix_times_its_transpose_in_two_floats(gpu: Gpu, n: int, inner: int, as_is: bool) -> None:
    x = fine(2, n, inner)
    kept = two_floats(x if as_is else x.transpose(0, 2, 1))
    found = run(
        gpu, "two_floats", "gram_two_floats", kept, kept, None, (n, n, inner), parts=2,
        LEFT_AS_IS=float(as_is), RIGHT_TRANSPOSED=float(as_is),
    )  # fmt: skip
    assert_as_near(found, x, x.transpose(0, 2, 1), 1.0, None, 0.0)
    # To the bit but within the tiles on the diagonal, where left and right are divided otherwise.
    first = found[:2, :, :n]
    assert np.allclose(first, first.transpose(0, 2, 1), rtol=2.0**-23, atol=np.abs(first).max() * 2.0**-29)
    assert np.array_equal(first[:, 64:, :64], first[:, :64, 64:].transpose(0, 2, 1))


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 6, 64, 133])
def test_a_polynomial_of_a_symmetric_matrix_in_two_floats(gpu: Gpu, n: int) -> None:
    half = fine(2, n, n)
    a = extended(two_floats(half + half.transpose(0, 2, 1)))
    kept = two_floats(a)
    found = run(
        gpu, "two_floats", "symmetric_product_two_floats", kept, kept, kept, (n, n, n), parts=2,
        ALPHA=2.0315, BETA=-4.775,
    )  # fmt: skip
    assert_as_near(found, a, a, float(np.float32(2.0315)), a, float(np.float32(-4.775)))


@pytest.mark.gpu
def test_the_same_factors_in_two_floats_give_the_same_bits(gpu: Gpu) -> None:
    left, right = two_floats(fine(2, 70, 90)), two_floats(fine(2, 90, 66))
    found = {
        run(
            gpu, "two_floats", "product_two_floats", left, right, None, (70, 66, 90), parts=2, LEFT_AS_IS=1.0
        ).tobytes()
        for _ in range(5)
    }  # fmt: skip
    assert len(found) == 1


@pytest.mark.gpu
def test_what_is_not_finite_stays_so(gpu: Gpu) -> None:
    left, right = two_floats(fine(1, 70, 40)), two_floats(fine(1, 40, 66))
    left[0, 5, 7], left[0, 9, 30] = np.nan, np.inf
    found = run(
        gpu, "two_floats", "product_two_floats", left, right, None, (70, 66, 40), parts=2, LEFT_AS_IS=1.0
    )  # fmt: skip
    assert not np.isfinite(found[0, [5, 9], :66]).any()
    assert np.isfinite(found[0, 20:, :66]).all()
