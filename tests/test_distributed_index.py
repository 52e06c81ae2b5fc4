"""The index of a distributed checkpoint, as other versions of Python write it, and as nobody but an attacker does."""

from __future__ import annotations

from pathlib import Path

import pytest

from inspector.errors import UsageError
from inspector.integrations import torch_distributed

ENCODING = b"ctorch.distributed.checkpoint.metadata\n_MEM_FORMAT_ENCODING\n"


def read(tmp_path: Path, content: bytes) -> object:
    path = tmp_path / ".metadata"
    path.write_bytes(content)
    return torch_distributed._read(path)


def test_a_member_of_an_enumeration_is_read_as_python_3_11_2_writes_it(tmp_path: Path) -> None:
    found = read(tmp_path, b"cbuiltins\ngetattr\n(" + ENCODING + b"VTORCH_CONTIGUOUS_FORMAT\ntR.")
    assert found.given == ("TORCH_CONTIGUOUS_FORMAT",)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "of",
    [b"ctorch.serialization\n_get_layout\n", b"ccollections\nOrderedDict\n", b"ctorch\nSize\n", b"Vtext\n",
     b"cbuiltins\ngetattr\n"],
    ids=["str", "dict", "tuple", "text", "itself"],
)  # fmt: skip
def test_the_attribute_of_anything_else_is_refused(tmp_path: Path, of: bytes) -> None:
    with pytest.raises(UsageError, match=r"builtins\.getattr, which is no part of an index"):
        read(tmp_path, b"cbuiltins\ngetattr\n(" + of + b"V__class__\ntR.")


def test_the_name_of_a_member_reaches_no_attribute(tmp_path: Path) -> None:
    found = read(tmp_path, b"cbuiltins\ngetattr\n(" + ENCODING + b"V__init__\ntR.")
    assert found.given == ("__init__",)  # type: ignore[attr-defined]
