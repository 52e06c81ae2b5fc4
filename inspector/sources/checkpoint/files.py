"""Which files a person means by a checkpoint: one or several, a folder, or the index of shards; and what is in them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from inspector.errors import UsageError
from inspector.progress import advanced, part
from inspector.session.tensorfile import MAX_HEADER_BYTES, TensorFile
from inspector.tensor_tree import StoredTensor, TensorDocument

LoadPickled = Callable[[Path], TensorDocument]
"""Reads what PyTorch saved."""

INDEX_SUFFIX = ".index.json"
PICKLED_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".tar")
NAMES_SUFFIX = ".txt"
_WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin")
_STATE_FILES = ("optimizer.safetensors", "optimizer.pt", "optimizer.bin", "optimizer.pth")
DISTRIBUTED_INDEX, DISTRIBUTED_SUFFIX = ".metadata", ".distcp"
"""Of torch.distributed.checkpoint: the index, and the files of the processes."""
_DEEPSPEED = re.compile(
    r"(zero_pp_rank_\d+_)?mp_rank_\d+_(model|optim)_states\.pt|(bf16_)?zero_pp_rank_.+|global_step\d+"
)
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.\w+)")


def is_pickled(path: Path) -> bool:
    """True for what PyTorch saves: a zip archive with a pickle in it, or a pickle; told by content, then by name."""
    try:
        with path.open("rb") as file:
            prefix = file.read(2)
    except OSError:
        return False
    if prefix == b"PK":
        return path.suffix != ".safetensors"
    if len(prefix) < 2:
        return path.suffix in PICKLED_SUFFIXES
    # A header of 128 + 256·n bytes begins like a pickle; safetensors say so by their ninth byte.
    return prefix[:1] == b"\x80" and prefix[1:] in (b"\2", b"\3", b"\4", b"\5") and not _is_safetensors(path)


def _is_safetensors(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(9)
    return len(start) == 9 and start[8:] == b"{" and int.from_bytes(start[:8], "little") <= MAX_HEADER_BYTES


def open_documents(
    paths: Sequence[Path], load: LoadPickled
) -> tuple[list[TensorDocument], tuple[str, ...] | None]:
    """What is in the files, and the names that a text file among them lists; UsageError for what is no checkpoint."""
    documents: list[TensorDocument] = []
    names: tuple[str, ...] | None = None
    files = list(_expanded(paths))
    for i, path in enumerate(files):
        advanced(i, len(files))
        with part(i / len(files), (i + 1) / len(files)):
            if path.suffix == NAMES_SUFFIX:
                names = _names(path)
            else:
                documents.append(_open(path, load))
    if not documents:
        raise UsageError(f"{paths[0]} lists names, and no file of weights stands beside it.")
    return documents, names


def _expanded(paths: Iterable[Path]) -> Iterator[Path]:
    """Folders and indexes as the files that they stand for."""
    for path in paths:
        if path.is_dir():
            yield from _expanded(_in_folder(path))
        elif path.name.endswith(INDEX_SUFFIX):
            yield from _shards(path)
        elif path.suffix == DISTRIBUTED_SUFFIX:
            yield from _in_folder(path.parent)
        else:
            shard = _SHARD.fullmatch(path.name)
            yield from [path] if shard is None else _siblings(path, shard)


def _in_folder(folder: Path) -> list[Path]:
    """The weights of a folder, with the state of the optimizer where it lies beside them."""
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        raise UsageError(f"{folder} cannot be read: {error.strerror or error}.") from None
    if any(name.endswith(DISTRIBUTED_SUFFIX) for name in names):
        if DISTRIBUTED_INDEX not in names:
            raise UsageError(
                f"{folder} is a distributed checkpoint that is incomplete: its index {DISTRIBUTED_INDEX} is missing, "
                "which is written last, and which some programs leave out as they copy."
            )
        return [folder / DISTRIBUTED_INDEX]
    if any(_DEEPSPEED.fullmatch(name) for name in names):
        raise UsageError(
            f"{folder} is a DeepSpeed checkpoint, whose parts it takes DeepSpeed to read. For the weights run the "
            "zero_to_fp32.py that lies beside it and open what it writes; for the moments save, in the script, what "
            "deepspeed.utils.safe_get_full_optimizer_state(param, 'exp_avg') and 'exp_avg_sq' give for each param."
        )
    weights = [name for name in names if name.endswith(INDEX_SUFFIX)][:1]
    weights = weights or [name for name in _WEIGHT_FILES if name in names][:1]
    if not weights:
        usable = [n for n in names if n.endswith(".safetensors") and n not in _STATE_FILES]
        firsts = [n for n in usable if (m := _SHARD.fullmatch(n)) is None or int(m[2]) == 1]
        weights = firsts if len(firsts) == 1 else []
    if not weights and DISTRIBUTED_INDEX in names:
        # Its parts are all missing; who reads the index names them.
        return [folder / DISTRIBUTED_INDEX]
    if not weights:
        raise UsageError(
            f"{folder} is no checkpoint: it holds no model.safetensors, no index of shards and no pytorch_model.bin. "
            "Name a file in it."
        )
    return [folder / name for name in (*weights, *[n for n in _STATE_FILES if n in names][:1])]


def _shards(index: Path) -> Iterator[Path]:
    document = read_json(index)
    places = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(places, dict) or not all(isinstance(each, str) for each in places.values()):
        raise UsageError(f"{index} is no index of shards: it has no weight_map from names to files.")
    for name in dict.fromkeys(places.values()):
        if Path(name).name != name or name in ("", ".", ".."):
            raise UsageError(
                f"{index} names the file {name!r}, which does not lie beside it: nothing is read from there."
            )
        path = index.parent / name
        if not path.exists():
            held = [param for param, file in places.items() if file == name]
            more = f" and {len(held) - 1:,} more" if len(held) > 1 else ""
            raise UsageError(f"{index} names the shard {name}, which is missing; it holds {held[0]!r}{more}.")
        yield path


def _siblings(path: Path, shard: re.Match[str]) -> Iterator[Path]:
    """All shards of which `path` is one."""
    stem, count, suffix = shard[1], int(shard[3]), shard[4]
    for number in range(1, count + 1):
        sibling = path.with_name(f"{stem}-{number:05d}-of-{count:05d}{suffix}")
        if not sibling.exists():
            raise UsageError(f"{path} is one of {count} shards, and {sibling.name} is missing.")
        yield sibling


def read_json(path: Path) -> Any:
    """The JSON document at `path`; UsageError where it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid JSON ({str(error)[:200]}).") from None


def _names(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as a list of names: {error}.") from None
    names = tuple(line.strip() for line in lines if line.strip())
    if not names:
        raise UsageError(f"{path} lists no names: give one param a line, in their order.")
    return names


def _open(path: Path, load: LoadPickled) -> TensorDocument:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None
    if not size:
        raise UsageError(f"{path} is empty: it has 0 bytes.")
    return load(path) if is_pickled(path) else open_safetensors(path)


def open_safetensors(path: Path) -> TensorDocument:
    """The header alone is read; UsageError where it is damaged."""
    file = TensorFile(path)
    tree = {
        name: StoredTensor(entry.shape, entry.dtype, partial(file.values, name))
        for name, entry in file.entries.items()
    }
    return TensorDocument(path, "safetensors", tree, ordered=False)
