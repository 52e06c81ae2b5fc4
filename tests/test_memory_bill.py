"""What training takes in memory: hand-worked bills, sharding, devices, and the bytes that a run really allocated."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from gpu_helpers import make_stepper
from safetensors.numpy import save_file

from inspector.byte_sizes import GB
from inspector.cli import run
from inspector.errors import UsageError
from inspector.gpu.device import Gpu
from inspector.layout import Param
from inspector.memory_bill import Bill, Shapes, bills_of, parse_count, shapes_of, shapes_of_count
from inspector.optimizers.state_size import is_hidden
from inspector.plan import Variant
from inspector.preset import gpt_116m_params
from inspector.state_memory import run_use

B70 = 70 * 10**9


def bill(model: Sequence[Param] | Shapes, optimizer: str, precision: str) -> Bill:
    shapes = model if isinstance(model, Counter) else shapes_of(model)
    every = [b for b in bills_of(shapes) if b.precision.name == precision]
    found = [b for b in every if optimizer in (b.optimizer, *b.also)]
    assert len(found) == 1
    return found[0]


def states(params: tuple[Param, ...], optimizer: str, precision: str = "f32") -> dict[str, int]:
    return {p.name: p.nbytes for p in bill(params, optimizer, precision).parts if p.kind == "state"}


def test_70_billion_params_in_two_bytes_with_two_moments_are_560_gb() -> None:
    found = bill(shapes_of_count(B70), "adamw", "bf16")
    assert found.total == 560 * GB
    assert {p.name: p.nbytes for p in found.parts} == dict.fromkeys(
        ("weights", "gradients", "m", "v"), 140 * GB
    )


def test_adamw_in_each_precision_of_a_hand_worked_model() -> None:
    # 10,000 elements: a matrix of 9,984, which is 39 blocks of 256, and a vector of 16, which keeps float32 state.
    params = (Param("h.0.weight", (96, 104)), Param("h.0.bias", (16,)))
    coded = (9_984 + 4 * 39) + 4 * 16
    assert {p: bill(params, "adamw", p).total for p in ("f32", "f32+f16", "bf16+master", "bf16")} == {
        "f32": 160_000, "f32+f16": 180_000, "bf16+master": 160_000, "bf16": 80_000,
    }  # fmt: skip
    assert states(params, "adamw", "f32+8bit") == {"m": coded, "v": coded}
    assert bill(params, "adamw", "bf16+master+8bit").total == 2 * 10_000 + 2 * 10_000 + 2 * coded + 4 * 10_000


def test_adam_and_adam_l2_keep_what_adamw_keeps() -> None:
    found = bill((Param("a", (8, 8)),), "adam-l2", "f32")
    assert found.optimizer == "adamw"
    assert found.total == 16 * 64


def test_adafactor_keeps_a_row_and_a_column_of_a_matrix_and_all_of_a_vector() -> None:
    params = (Param("a", (300, 500)), Param("conv", (8, 4, 3, 3)), Param("bias", (7,)))
    # Of the convolution the last two dimensions are factored: 32 rows of 3 and 32 columns of 3.
    assert states(params, "adafactor") == {
        "row_var": 4 * (300 + 96), "col_var": 4 * (500 + 96), "variance": 4 * 7,
    }  # fmt: skip


def test_shampoo_keeps_two_factors_and_their_roots_of_each_block_of_256() -> None:
    # 1,500 x 600 in 6 x 3 blocks of 250 x 200 at most, 250 rounded up to a multiple of 8.
    left, right = 18 * 256**2, 18 * 200**2
    params = (Param("a", (1500, 600)), Param("bias", (5,)))
    assert states(params, "shampoo") == {
        "m": 4 * (900_000 + 5), "v": 4 * 5, "left_factor": 4 * left, "right_factor": 4 * right,
        "left_root": 4 * left, "right_root": 4 * right,
    }  # fmt: skip
    # In bfloat16 the factors stay float32: their roots could not be taken otherwise.
    assert states(params, "shampoo", "bf16")["left_factor"] == 4 * left


def test_muon_keeps_one_moment_of_hidden_matrices_and_two_of_the_rest() -> None:
    params = (
        Param("tok_embeddings.weight", (10, 4)), Param("h.0.attn.qkv.weight", (4, 12)), Param("norm.weight", (4,)),
        Param("lm_head.weight", (10, 4)),
    )  # fmt: skip
    assert states(params, "muon") == {"m": 4 * (40 + 48 + 4 + 40), "v": 4 * (40 + 4 + 40)}


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("transformer.wte.weight", False), ("wpe.weight", False), ("model.embed_tokens.weight", False),
        ("lm_head.weight", False), ("head.weight", False), ("output.weight", False), ("classifier.weight", False),
        ("h.0.attn.q_head_proj.weight", True), ("h.0.attn.c_proj.weight", True), ("layer.output.dense.weight", True),
    ],
)  # fmt: skip
def test_embeddings_and_heads_are_told_from_hidden_matrices_by_name(name: str, hidden: bool) -> None:
    assert is_hidden(name, (4, 4)) is hidden
    assert not is_hidden(name, (4,))


def test_zero_shards_state_then_gradients_then_weights() -> None:
    found = bill((Param("a", (1000, 1000)),), "adamw", "bf16+master")
    # In MB: weights 2, gradients 2, m and v 8, master 4; over 4 devices.
    assert [found.on_each(4, stage) for stage in (0, 1, 2, 3)] == [
        16_000_000,
        7_000_000,
        5_500_000,
        4_000_000,
    ]
    # What does not divide is rounded up to a byte.
    assert bill((Param("a", (1,)),), "adamw", "bf16").on_each(3, 3) == 4 * 1


def test_the_fewest_devices_hold_it_and_one_fewer_does_not() -> None:
    found = bill(shapes_of_count(B70), "adamw", "bf16")
    assert [found.devices_of(gb * GB, 3) for gb in (24, 80, 141)] == [24, 7, 4]
    # Stage 1 leaves 280 GB of weights and gradients on each: no number of these devices does.
    assert [found.devices_of(gb * GB, 1) for gb in (24, 80, 141)] == [None] * 3
    assert found.devices_of(300 * GB, 1) == 14
    assert found.devices_of(560 * GB, 0) == 1
    assert found.devices_of(560 * GB - 1, 0) is None
    for each in bills_of(shapes_of_count(7 * 10**9)):
        for stage in (1, 2, 3):
            n = each.devices_of(24 * GB, stage)
            if n is not None:
                assert each.on_each(n, stage) <= 24 * GB
                assert n == 1 or each.on_each(n - 1, stage) > 24 * GB


@pytest.mark.parametrize("elements", [1, 2, 5, 1000, 116_017_920, 7 * 10**9, B70])
def test_shapes_of_a_count_have_that_many_elements(elements: int) -> None:
    shapes = shapes_of_count(elements)
    assert sum(math.prod(shape) * n for (shape, _), n in shapes.items()) == elements


def test_the_width_for_a_count_is_that_of_models_of_its_size() -> None:
    # Llama: 4,096 at 7 B and 8,192 at 70 B (Touvron et al. 2023, table 1 of either paper).
    for elements, width in ((7 * 10**9, 4096), (B70, 8192)):
        assert shapes_of_count(elements).most_common(1)[0][0] == ((width, width), True)


@pytest.mark.parametrize(
    ("text", "count"),
    [("70B", B70), ("70e9", B70), ("7.5b", 7_500_000_000), ("116_017_920", 116_017_920), ("1,000", 1000), ("2k", 2000),
     ("1.1T", 1_100_000_000_000), ("charlm", None), ("70 bananas", None), ("-5", None), ("", None)],
)  # fmt: skip
def test_counts_as_people_write_them(text: str, count: int | None) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["0", "0.2", "1e16", "9e999"])
def test_counts_that_nobody_can_mean_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no number of elements to bill"):
        parse_count(text)


@pytest.mark.parametrize("text", ["1,5B", "1,0,0", "70,00", "1_5B", "1,500,00", "1,500_000"])
def test_a_comma_that_may_be_a_decimal_one_is_not_taken_for_nothing(text: str) -> None:
    with pytest.raises(UsageError, match="decimal point"):
        parse_count(text)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["f32", "f16", "8bit"])
def test_the_bill_of_a_run_is_what_wgpu_allocated_but_for_the_gaps(gpu: Gpu, kernel: str) -> None:
    params = (
        Param("a", (100, 131)), Param("b", (64, 64)), Param("c", (3, 5)), Param("norm", (33,)), Param("one", ()),
    )  # fmt: skip
    variant = Variant(kernel=kernel)  # type: ignore[arg-type]
    stepper = make_stepper(gpu, params, variant, w={p.name: np.ones(p.numel, np.float32) for p in params})
    n = sum(p.numel for p in params)
    use = {u.name: u for u in run_use(stepper.plan, stepper.buffer_bytes)}
    billed = bill(params, "adamw", {"f32": "f32", "f16": "f32+f16", "8bit": "f32+8bit"}[kernel])
    by_name = {"w": "weights", "g": "gradients", "m": "m", "v": "v", "w_f16": "f16 mirror"}
    assert {by_name[name]: u.computed for name, u in use.items()} == {p.name: p.nbytes for p in billed.parts}
    # Each of the float32 lanes has the gaps of the layout; no gap is longer than an alignment a param.
    gap = stepper.layout.padded_elements - n
    assert 0 < gap < stepper.layout.align * len(params)
    assert use["w"].gaps == use["g"].gaps == 4 * gap
    if kernel == "8bit":
        assert all(0 <= use[lane].gaps <= 4 * gap for lane in "mv")
    else:
        assert use["m"].gaps == use["v"].gaps == 4 * gap
    if kernel == "f16":
        assert use["w_f16"].gaps == 2 * gap
    buffers = [stepper.buffer_bytes[spec.name] for spec in stepper.plan.buffers if spec.kind == "state"]
    assert sum(u.allocated for u in use.values()) == sum(buffers) <= stepper.memory_bytes


@pytest.mark.gpu
@pytest.mark.parametrize("optimizer", ["adafactor", "shampoo"])
def test_states_in_shapes_of_their_own_are_in_the_bill_of_a_run(gpu: Gpu, optimizer: str) -> None:
    params = (Param("a", (100, 131)), Param("c", (3, 5)), Param("norm", (33,)))
    variant = Variant(optimizer=optimizer)
    stepper = make_stepper(gpu, params, variant, w={p.name: np.ones(p.numel, np.float32) for p in params})
    use = {u.name: u for u in run_use(stepper.plan, stepper.buffer_bytes)}
    billed = {p.name: p.nbytes for p in bill(params, optimizer, "f32").parts}
    by_name = {"w": "weights", "g": "gradients"}
    computed = {by_name.get(name, name): u.computed for name, u in use.items()}
    if optimizer == "shampoo":
        # What is subtracted from matrices stands in v's place, which need not be kept.
        computed["v"] -= 4 * (100 * 131 + 3 * 5)
    assert computed == billed
    assert all(0 <= u.gaps < 256 * len(params) for u in use.values())


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert run(["memory", *words, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_the_command_bills_a_count(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "70B", "--devices", "8", "--zero", "3", "--precision", "bf16")
    row = found["bills"][0]  # type: ignore[index]
    assert (row["optimizer"], row["total"], row["per_device"]) == ("adamw", 560 * GB, 70 * GB)
    assert row["devices_needed"] == {"24": 24, "80": 7, "141": 4}
    assert row["states"] == {"m": 140 * GB, "v": 140 * GB}
    assert "activations" in str(found["left_out"])
    assert found["gb_bytes"] == 10**9


def test_the_command_bills_the_reference_layout(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "gpt-116m", "--precision", "f32")
    assert found["elements"] == sum(p.numel for p in gpt_116m_params()) == 116_017_920
    assert found["bills"][0]["total"] == 16 * 116_017_920  # type: ignore[index]


def test_the_command_reads_the_header_of_a_model_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # 2 GB of weights of which no byte is there: a sparse file.
    path, rows = tmp_path / "model.safetensors", 2**20
    header = {"big.weight": {"dtype": "BF16", "shape": [rows, 1024], "data_offsets": [0, 2 * rows * 1024]}}
    raw = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        file.truncate(8 + len(raw) + 2 * rows * 1024)
    found = document(capsys, str(path), "--precision", "bf16")
    assert found["shapes"] == "as in the file's header"
    assert found["bills"][0]["total"] == 8 * rows * 1024  # type: ignore[index]


def test_the_command_bills_a_state_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "state.safetensors"
    save_file({"w/a": np.ones((4, 4), np.float32), "g/a": np.ones((4, 4), np.float32)}, path)
    assert document(capsys, str(path), "--precision", "f32")["elements"] == 16


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("70B", "--zero", "4"), "no stage of ZeRO"),
        (("70B", "--devices", "0"), "no number of devices"),
        (("70B", "--precision", "int4"), "no precision 'int4'"),
        (("nowhere.safetensors",), "is no source"),
    ],
)
def test_wrong_usage_is_told_in_a_sentence(
    words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["memory", *words]) == 2
    told = capsys.readouterr()
    assert says in told.err
    assert told.out == ""


def test_the_table_says_what_gb_are_and_what_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", "7B", "--devices", "4"]) == 0
    text = capsys.readouterr().out
    assert "GB are 10⁹ bytes" in text
    assert "activations" in text
    assert "on 4 devices" in text
