"""What PyTorch saved, read by its weights-only loader: tensors mapped from the file, and no code of it run.

Source: torch.load, torch/serialization.py and torch/_weights_only_unpickler.py of PyTorch 2.13.
"""

from __future__ import annotations

import io
import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from inspector.errors import UsageError
from inspector.integrations.pickle_names import foreign_names
from inspector.integrations.torch_distributed import METADATA, load_distributed
from inspector.progress import EndedError, advanced
from inspector.tensor_tree import StoredTensor, TensorDocument, Tree

if TYPE_CHECKING:
    import torch

INSTALL = "pip install 'optimizer-inspector[torch]', or in its folder pip install '.[torch]'"
_DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8",
    "bool": "BOOL",
}  # fmt: skip
MAX_DEPTH = 64
READ_AT_ONCE = 16 << 20
"""Bytes that are read between two looks at whether they are still wanted."""
_MAKERS = {
    "torchao": (
        "the state of a low-bit optimizer of torchao, whose own class it takes to read it. Save plain tensors: call "
        "dequantize() on each value of optimizer.state_dict()['state'] that has it, and torch.save what comes of that."
    ),
    "deepspeed": (
        "a part of a DeepSpeed checkpoint, whose own classes it takes to read it. For the weights run the "
        "zero_to_fp32.py that lies in that checkpoint and open what it writes; for the moments save, in the script, "
        "what deepspeed.utils.safe_get_full_optimizer_state(param, 'exp_avg') and 'exp_avg_sq' give for each param."
    ),
}
"""What else saves states, and how they are saved so that they can be read."""


def load_pickled(path: Path) -> TensorDocument:
    """The tree that `path` holds; UsageError, in a sentence, where it cannot be read or PyTorch is not installed."""
    distributed = path.name == METADATA
    if not distributed:
        _check_archive(path)
    try:
        import torch
    except ImportError:
        raise UsageError(
            f"{path} was saved by PyTorch, which is needed to read it and is not installed: {INSTALL}."
        ) from None
    if distributed:
        return load_distributed(path, _DTYPES)
    return TensorDocument(path, "PyTorch", _tree(_load(path, torch)), ordered=True)


def _check_archive(path: Path) -> None:
    """What can be said of a zip archive without PyTorch: that it is cut off, or holds a program."""
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"PK"
        if not zipped:
            return
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise UsageError(f"{path} is damaged or cut off: its end is missing ({error}).") from None
    if any(name.endswith("/constants.pkl") for name in names):
        raise UsageError(
            f"{path} is a TorchScript archive, which holds a program: save its weights alone, with "
            "torch.save(model.state_dict(), …)."
        )
    if not any(name.endswith("data.pkl") for name in names):
        raise UsageError(f"{path} is a zip archive, and none of PyTorch's: it holds no data.pkl.")


def _load(path: Path, torch: Any) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            except RuntimeError as error:
                if "mmap can only be used" not in str(error):
                    raise
                # The format of before 1.6 cannot be mapped: all of it is read.
                with _Told(path) as file:
                    try:
                        return torch.load(file, map_location="cpu", weights_only=True)
                    except Exception:
                        if file.ended:
                            raise EndedError from None
                        raise
    except EndedError:
        raise
    except pickle.UnpicklingError as error:
        # A model that was saved whole holds classes of PyTorch, of which its loader takes some.
        foreign = foreign_names(path) or re.findall(r"GLOBAL (\S+) was not an allowed global", str(error))
        if not foreign:
            raise UsageError(
                f"{path} cannot be read by PyTorch's weights-only loader ({_last_line(str(error))}): save it anew with "
                "torch.save."
            ) from None
        foreign.sort(key=lambda name: name.startswith(("__builtin__.", "builtins.")))
        for maker, how in _MAKERS.items():
            of = next((name for name in foreign if name.startswith(f"{maker}.")), None)
            if of is not None:
                raise UsageError(f"{path} holds {of}, {how}") from None
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise UsageError(
            f"{path} holds {foreign[0]}{more}, which is no tensor: to load it would run code of that file, so it is "
            "not opened. Save what is of use alone, as in torch.save({'model': model.state_dict(), 'optimizer': "
            "optimizer.state_dict()}, …)."
        ) from None
    except MemoryError:
        raise UsageError(f"{path} is damaged, or larger than this computer's memory.") from None
    # What reading a damaged pickle raises cannot be listed: every error of its opcodes, of zip and of tensors.
    except Exception as error:  # noqa: BLE001
        raise UsageError(
            f"{path} is damaged or cut off: PyTorch cannot read it ({_first_line(str(error)) or type(error).__name__})."
        ) from None


class _Told(io.BufferedIOBase):
    """A file to read that says how far it has been read. It has no number of its own, which PyTorch would read by."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._size = path.stat().st_size
        self.ended = False
        """True once it is no longer wanted, and reads as though it were cut off."""

    def _goes_on(self) -> bool:
        # What is raised here would come out of PyTorch's C++ as another error, or as none.
        try:
            advanced(self._file.tell(), self._size)
        except EndedError:
            self.ended = True
        return not self.ended

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        return self._file.read(size) if self._goes_on() else b""

    def readinto(self, buffer: Any, /) -> int:
        # A tensor is read at once: in pieces, so that it can be ended within a large one.
        view, done = memoryview(buffer).cast("B"), 0
        while done < len(view) and self._goes_on():
            count = self._file.readinto(view[done : done + READ_AT_ONCE])
            if not count:
                break
            done += count
        return done

    def readline(self, size: int | None = -1, /) -> bytes:
        return self._file.readline(-1 if size is None else size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()


def _last_line(text: str) -> str:
    """What went wrong, without the advice around it."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and "torch.load" not in line]
    return lines[-1][:160].rstrip(".") if lines else "it says no more"


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:160].rstrip(".") if lines else ""


def _tree(value: Any, depth: int = 0) -> Tree:
    import torch

    if isinstance(value, torch.Tensor):
        return _stored(value)
    if depth < MAX_DEPTH:
        if isinstance(value, Mapping):
            return {key: _tree(each, depth + 1) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [_tree(each, depth + 1) for each in value]
    return value if isinstance(value, (bool, int, float, str)) else None


def _stored(tensor: torch.Tensor) -> StoredTensor:
    kind = str(tensor.dtype).removeprefix("torch.")
    dense = str(tensor.layout) == "torch.strided" and not tensor.is_quantized and tensor.device.type == "cpu"
    dtype = _DTYPES.get(kind, kind) if dense else f"{tensor.layout}".removeprefix("torch.")
    memory = None
    if dense and tensor.numel():
        memory = (
            tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()),
        )  # fmt: skip
    return StoredTensor(tuple(tensor.shape), dtype, partial(_values, tensor), memory)


def _values(tensor: torch.Tensor) -> npt.NDArray[Any]:
    import torch

    plain = tensor.detach()
    if plain.is_floating_point() and plain.dtype not in (torch.float32, torch.float64):
        plain = plain.to(torch.float32)
    values: npt.NDArray[Any] = np.asarray(plain.numpy())
    values.flags.writeable = False
    return values
