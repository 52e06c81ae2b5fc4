"""A folder of a user's WGSL files, read and held against the slots of the kernels they take the place of."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from inspector.errors import UsageError
from inspector.kernel_slots import KERNEL_SLOTS, item_elements, matched
from inspector.own_kernels import OwnKernel, OwnKernels
from inspector.wgsl import EntryPoint, Module, parse
from inspector.wgsl_tokens import tokens

MAX_FILE_BYTES = 1 << 20
MAX_NESTING = 64
MAX_STATEMENT = 400
"""Tokens between two of ; , { }."""
MAX_ALTERNATIVES = 100
MAX_TEMPLATES = 16
"""Compilers descend into what is nested, or strung together, without looking how deep: some five times as much as
these ends the process on a small stack. A line of a kernel has about 20 tokens."""
_TEMPLATES = ("array", "atomic", "ptr", "vec2", "vec3", "vec4")
SHOWN_PROBLEMS = 5


def load_own_kernels(folder: Path) -> OwnKernels:
    """The kernels of the WGSL files in `folder` whose entry points are those of the pipeline.

    Raises UsageError where there is none, where two files hold the same one, where a file cannot be read, and
    where bindings are not those of the kernel: with file and line, and what is expected there. What the
    language itself does not allow is left to the compiler.
    """
    found: dict[str, OwnKernel] = {}
    seen: list[str] = []
    problems: list[str] = []
    for path in _files(folder):
        text = _text(path)
        module = parse(text)
        seen += [entry.name for entry in module.entry_points]
        wanted = [entry for entry in module.entry_points if entry.name in KERNEL_SLOTS]
        if wanted:
            _check_depth(path, text)
            problems += _without_default(module, path)
        for entry in wanted:
            if entry.name in found:
                other = found[entry.name].place
                problems.append(f"{path}:{entry.line}: {entry.name} is in {other} as well: leave one of them")
                continue
            kernel, wrong = _kernel(module, entry, path, text)
            problems += wrong
            found[entry.name] = kernel
    if problems:
        more = len(problems) - SHOWN_PROBLEMS
        tail = f"; and {more} more" if more > 0 else ""
        raise UsageError("; ".join(problems[:SHOWN_PROBLEMS]) + f"{tail}.")
    if not found:
        have = f"has {', '.join(seen[:5])}" if seen else "has no compute entry point"
        raise UsageError(
            f"--shaders {folder} {have}, none of which is a kernel of the pipeline: name an entry point "
            f"{', '.join(list(KERNEL_SLOTS)[:-1])} or {list(KERNEL_SLOTS)[-1]}."
        )
    return OwnKernels(tuple(found[name] for name in KERNEL_SLOTS if name in found))


def kernel_of_text(text: str, entry_point: str, file: str) -> tuple[OwnKernel | None, tuple[str, ...]]:
    """The kernel `entry_point` of a text that may not lie in any file, and what is wrong with it: "FILE:LINE: what".

    `file` is what it is called. None where anything is wrong that can be told without a compiler.
    """
    path = Path(file)
    nbytes = len(text.encode("utf-8", "replace"))
    if nbytes > MAX_FILE_BYTES:
        return None, (
            f"{file}:1: this has {nbytes:,} bytes, over the {MAX_FILE_BYTES:,} that are read of a shader",
        )
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        return None, (f"{file}:{line}: there is a NUL character here, which WGSL does not allow",)
    try:
        _check_depth(path, text)
    except UsageError as error:
        return None, (str(error),)
    module = parse(text)
    entry = next((each for each in module.entry_points if each.name == entry_point), None)
    if entry is None:
        have = ", ".join(each.name for each in module.entry_points[:5])
        there = f"it has {have}" if have else "it has none"
        return None, (f"{file}:1: a compute entry point {entry_point} is wanted, and {there}",)
    kernel, wrong = _kernel(module, entry, path, text)
    problems = (*_without_default(module, path), *wrong)
    return (None if problems else kernel), problems


def texts_by_entry_point(files: Sequence[Path]) -> dict[str, tuple[Path, str]]:
    """The compute entry points of WGSL files, each with the file it is in and the whole text of that.

    Raises UsageError where a file cannot be read or none has an entry point; of two with the same one the last counts.
    """
    found: dict[str, tuple[Path, str]] = {}
    for path in files:
        text = _text(path)
        found |= {entry.name: (path, text) for entry in parse(text).entry_points}
    if not found:
        names = ", ".join(path.name for path in files)
        raise UsageError(
            f"{names} has no compute entry point: a kernel begins with @compute @workgroup_size(256)."
        )
    return found


def _files(folder: Path) -> list[Path]:
    try:
        if not folder.is_dir():
            what = "is a file: name the folder it is in" if folder.exists() else "does not exist"
            raise UsageError(f"--shaders {folder} {what}.")
        files = sorted(path for path in folder.iterdir() if path.suffix.lower() == ".wgsl")
    except OSError as error:
        raise UsageError(f"--shaders {folder} cannot be read: {error.strerror or error}.") from None
    if not files:
        raise UsageError(f"--shaders {folder} holds no .wgsl file.")
    return files


def _text(path: Path) -> str:
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise UsageError(f"{path} is no ordinary file: take it out of the folder or rename it.")
        if about.st_size > MAX_FILE_BYTES:
            raise UsageError(
                f"{path} has {about.st_size:,} bytes, over the {MAX_FILE_BYTES:,} that are read of a shader."
            )
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None
    try:
        # A byte order mark, as some editors write it, is no part of the program.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}:{line}: this is not UTF-8: save the file in that encoding.") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UsageError(f"{path}:{line}: there is a NUL character here, which WGSL does not allow.")
    if not text.strip():
        raise UsageError(f"{path} is empty: write a kernel in it or take it out of the folder.")
    return text


def _check_depth(path: Path, text: str) -> None:
    depth = length = alternatives = templates = 0
    before = ""
    for token in tokens(text):
        depth += (token.text in "([{") - (token.text in ")]}")
        templates += token.text == "<" and before in _TEMPLATES
        templates = 0 if token.text == ";" else templates - (token.text == ">" and templates > 0)
        before = token.text
        length = 0 if token.text in ";,{}" else length + 1
        alternatives += token.text == "else"
        deep = depth > MAX_NESTING or templates > MAX_TEMPLATES
        if deep or length > MAX_STATEMENT or alternatives > MAX_ALTERNATIVES:
            raise UsageError(
                f"{path}:{token.line}: this is nested deeper, or longer, than compilers can be trusted with: "
                "write it in parts."
            )


def _without_default(module: Module, path: Path) -> Iterator[str]:
    for override in module.overrides:
        if not override.has_default:
            yield f"{path}:{override.line}: override {override.name} has no default value: give it one"


def _kernel(module: Module, entry: EntryPoint, path: Path, text: str) -> tuple[OwnKernel, list[str]]:
    resources, problems = matched(module, entry, str(path))
    if entry.threads is None:
        problems.append(
            f"{path}:{entry.line}: the @workgroup_size of {entry.name} cannot be worked out: write numbers, or "
            "constants made of numbers (a built-in kernel is whole where the Shaders view saved it)"
        )
    kernel = OwnKernel(
        entry_point=entry.name,
        file=str(path),
        line=entry.line,
        source=text,
        threads=entry.threads or 1,
        grid=KERNEL_SLOTS[entry.name].grid,
        item_elements=item_elements(module, resources[0]) if 0 in resources else 1,
        access=tuple(
            (slot, "read_write" if r.access == "read_write" else "read")
            for slot, r in sorted(resources.items())
            if r.space == "storage"
        ),
        overrides=tuple((o.name, o.key) for o in module.overrides),
        enables=tuple(module.enables.items()),
    )
    return kernel, problems
