"""A folder saved by torch.distributed.checkpoint, read as one document: no code of it runs, values come once used.

Its file `.metadata` is a pickle of names, shapes and places, made of plain data and a dozen classes of PyTorch; they
are read as records of our own, and any other name is refused. What it points to PyTorch's weights-only loader reads.
Source: metadata.py and filesystem.py of torch.distributed.checkpoint in PyTorch 2.13.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from inspector.errors import UsageError
from inspector.progress import counting
from inspector.tensor_tree import StoredTensor, TensorDocument, Tree

METADATA = ".metadata"
SUFFIX = ".distcp"
MAX_METADATA_BYTES = 1 << 28
MAX_PLAIN_BYTES = 1 << 24
"""Of a value that is no tensor, as a learning rate or a list of names; a larger one is left aside."""
_RECORDS = {
    "torch.distributed.checkpoint.metadata": {
        "Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata", "TensorProperties",
        "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo", "_StoragePrefix"},
    "pathlib": {"Path", "PosixPath", "PurePosixPath", "PureWindowsPath", "WindowsPath"},
}  # fmt: skip
"""What stands for a record of its attributes."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A box of a tensor: its first element in each dimension, its sizes, and where it lies in which file."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    path: Path
    start: int
    nbytes: int


def load_distributed(metadata: Path, types: Mapping[str, str]) -> TensorDocument:
    """The folder of the file `metadata` as a tree; `types` names PyTorch's types as safetensors does.

    UsageError, in a sentence, for what is damaged, incomplete, or holds anything but tensors and plain values.
    """
    found = _read(metadata)
    entries, places = getattr(found, "state_dict_metadata", None), getattr(found, "storage_data", None)
    if not isinstance(entries, dict) or not isinstance(places, dict):
        raise UsageError(
            f"{metadata} is damaged: it does not say which tensors the checkpoint holds and where."
        )
    by_name: dict[str, list[tuple[tuple[int, ...] | None, Any]]] = {}
    for index, info in places.items():
        name, offset = getattr(index, "fqn", None), getattr(index, "offset", None)
        by_name.setdefault(str(name), []).append((None if offset is None else tuple(offset), info))
    paths = getattr(found, "planner_data", None)
    tree: dict[Any, Any] = {}
    # Values that are no tensors are read at once, each from an archive of its own.
    begun = counting(len(entries))
    for name, entry in entries.items():
        begun(1)
        keys = paths.get(name) if isinstance(paths, dict) else None
        _put(
            tree,
            keys if isinstance(keys, tuple) and keys else (name,),
            _value(metadata, name, entry, by_name, types),
        )
    return TensorDocument(metadata.parent, "PyTorch (distributed)", _with_lists(tree), ordered=False)


# --- the index


def _read(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_METADATA_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None
    if len(content) > MAX_METADATA_BYTES:
        raise UsageError(f"{path} is larger than the index of any checkpoint.")
    try:
        return _Reader(io.BytesIO(content), path).load()
    except UsageError:
        raise
    # What reading a damaged pickle raises cannot be listed.
    except Exception as error:  # noqa: BLE001
        raise UsageError(
            f"{path} is damaged or cut off: it is no index of a checkpoint ({type(error).__name__})."
        ) from None


class _Reader(pickle.Unpickler):
    """Of the names in a pickle it knows those of an index, and makes records and plain data of them."""

    def __init__(self, file: io.BytesIO, path: Path) -> None:
        super().__init__(file)
        self._path = path
        self._made: dict[tuple[str, str], Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        if name in _RECORDS.get(module, ()):
            # Made anew for each file, so that nothing which one does to them reaches another.
            return self._made.setdefault((module, name), type(name, (_Record,), {}))
        if (module, name) == ("builtins", "getattr"):
            return self._member
        if (module, name) == ("torch", "Size"):
            return tuple
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if (module, name) == ("torch.serialization", "_get_layout"):
            return str
        if module == "torch" and name.replace("_", "").isalnum() and name.islower():
            return name  # A type, as float32.
        raise self._foreign(f"{module}.{name}")

    def _member(self, of: Any, name: Any) -> Any:
        """As Python 3.11 up to 3.11.3 writes a member of an enumeration: the attribute of that name of its class."""
        if isinstance(of, type) and of in self._made.values() and isinstance(name, str):
            return of(name)
        raise self._foreign("builtins.getattr")

    def _foreign(self, what: str) -> UsageError:
        return UsageError(
            f"{self._path} holds {what}, which is no part of an index: to load it would run code of that file, so it "
            "is not opened."
        )


class _Record:
    """An object of another program as its attributes; what it was made of stays aside."""

    def __init__(self, *given: Any) -> None:
        self.given = given

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update({key: value for key, value in state.items() if isinstance(key, str)})
        else:
            self.given = state if isinstance(state, tuple) else (state,)


# --- its entries


def _value(
    metadata: Path,
    name: str,
    entry: Any,
    places: Mapping[str, list[tuple[tuple[int, ...] | None, Any]]],
    types: Mapping[str, str],
) -> Tree:
    kind = type(entry).__name__
    if kind == "BytesStorageMetadata":
        return _plain(name, _chunk(metadata, name, (), (), places.get(name, [(None, None)])[0][1]))
    size, chunks = getattr(entry, "size", None), getattr(entry, "chunks", None)
    properties = getattr(getattr(entry, "properties", None), "given", ())
    if kind != "TensorStorageMetadata" or not _whole(size) or not isinstance(chunks, list):
        raise UsageError(f"{metadata} is damaged: what it says of {name!r} is of no tensor.")
    shape = tuple(size)
    here = dict(places.get(name, []))
    boxes = []
    for each in chunks:
        offsets, sizes = getattr(each, "offsets", None), getattr(each, "sizes", None)
        if not _whole(offsets) or not _whole(sizes) or len(offsets) != len(shape) or len(sizes) != len(shape):
            raise UsageError(f"{metadata} is damaged: a part of {name!r} has no place in it.")
        if any(at + part > whole for at, part, whole in zip(offsets, sizes, shape, strict=True)):
            raise UsageError(
                f"{metadata} is damaged: a part of {name!r} reaches beyond its shape {list(shape)}."
            )
        if math.prod(sizes):
            boxes.append(_chunk(metadata, name, tuple(offsets), tuple(sizes), here.get(tuple(offsets))))
    if sum(math.prod(box.sizes) for box in boxes) != math.prod(shape):
        raise UsageError(
            f"{metadata} is incomplete: the parts of {name!r} do not come to its shape {list(shape)}."
        )
    dtype = str(properties[0]) if properties else ""
    return StoredTensor(shape, types.get(dtype, dtype), partial(_joined, name, shape, tuple(boxes)))


def _whole(numbers: Any) -> TypeGuard[tuple[int, ...]]:
    return isinstance(numbers, tuple) and all(
        isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 48 for n in numbers
    )


def _chunk(metadata: Path, name: str, offsets: tuple[int, ...], sizes: tuple[int, ...], info: Any) -> Chunk:
    file, start, nbytes = (getattr(info, key, None) for key in ("relative_path", "offset", "length"))
    if not isinstance(file, str) or not _whole((start, nbytes)):
        raise UsageError(f"{metadata} is damaged: it does not say where {name!r} lies.")
    if Path(file).is_absolute() or ".." in Path(file).parts:
        raise UsageError(
            f"{metadata} names the file {file!r}, which does not lie beside it: nothing is read from there."
        )
    if getattr(info, "transform_descriptors", None):
        raise UsageError(
            f"{metadata.parent} was saved through an extension, compressed perhaps: save it without."
        )
    path = metadata.parent / file
    try:
        size = path.stat().st_size
    except OSError:
        raise UsageError(f"{metadata.parent} lacks the file {file}, which holds {name!r}.") from None
    assert isinstance(start, int)
    assert isinstance(nbytes, int)
    if start + nbytes > size:
        raise UsageError(
            f"{path} is cut off: {name!r} ends at byte {start + nbytes:,}, the file at {size:,}."
        )
    return Chunk(offsets, sizes, path, start, nbytes)


def _loaded(chunk: Chunk) -> Any:
    import torch

    with chunk.path.open("rb") as file:
        file.seek(chunk.start)
        content = io.BytesIO(file.read(chunk.nbytes))
    if not content.getvalue().startswith((b"PK", b"\x80")):
        raise ValueError("neither an archive nor a pickle")
    return torch.load(content, map_location="cpu", weights_only=True)


def _plain(name: str, chunk: Chunk) -> Tree:
    """A value that is no tensor; None for one that is not plain, or could not be read without code of the file."""
    if chunk.nbytes > MAX_PLAIN_BYTES:
        return None
    try:
        return _only_plain(_loaded(chunk))
    except pickle.UnpicklingError:
        return None
    except Exception:  # noqa: BLE001 - every error of zip and of opcodes
        raise UsageError(f"{chunk.path} is damaged: what it holds of {name!r} cannot be read.") from None


def _only_plain(value: Any, depth: int = 0) -> Tree:
    if isinstance(value, (bool, int, float, str)):
        return value
    if depth < 8 and isinstance(value, dict):
        return {key: _only_plain(each, depth + 1) for key, each in value.items()}
    if depth < 8 and isinstance(value, (list, tuple)):
        return [_only_plain(each, depth + 1) for each in value]
    return None


def _joined(name: str, shape: tuple[int, ...], chunks: Sequence[Chunk]) -> npt.NDArray[Any]:
    """The parts of a tensor put together, read-only."""
    import torch

    whole: npt.NDArray[Any] | None = None
    covered = np.zeros(shape, np.bool_)
    for chunk in chunks:
        damaged = UsageError(f"{chunk.path} is damaged: what it holds of {name!r} cannot be read.")
        try:
            part = _loaded(chunk)
        except Exception:  # noqa: BLE001 - every error of its opcodes, of zip and of tensors
            raise damaged from None
        if not isinstance(part, torch.Tensor) or tuple(part.shape) != chunk.sizes:
            raise damaged
        if part.is_floating_point() and part.dtype not in (torch.float32, torch.float64):
            part = part.to(torch.float32)
        values = part.detach().numpy()
        if whole is None:
            whole = np.zeros(shape, values.dtype)
        box = tuple(slice(at, at + size) for at, size in zip(chunk.offsets, chunk.sizes, strict=True))
        whole[box], covered[box] = values, True
    if whole is None:
        whole = np.zeros(shape, np.float32)
    if not covered.all():
        raise UsageError(
            f"{chunks[0].path.parent} is damaged: parts of {name!r} overlap, and leave others out."
        )
    whole.flags.writeable = False
    return whole


# --- the tree


def _put(tree: dict[Any, Any], keys: Sequence[Any], value: Tree) -> None:
    for key in keys[:-1]:
        below = tree.setdefault(key, {})
        if not isinstance(below, dict):
            return
        tree = below
    tree[keys[-1]] = value


def _with_lists(tree: Tree) -> Tree:
    """Mappings from 0, 1, 2 and so on as lists: those of groups, not those of states by the number of a param."""
    if not isinstance(tree, dict):
        return tree
    made = {key: _with_lists(each) for key, each in tree.items()}
    groups = made.get("param_groups")
    if isinstance(groups, dict) and set(groups) == set(range(len(groups))):
        made["param_groups"] = [groups[number] for number in range(len(groups))]
    return made
