"""Floor 6. Weights and checkpoints on disk: safetensors, which PyTorch reads, or NumPy's npz; never pickle.

What is saved is a state dict, arrays by name, or a *tree* of dicts, lists, numbers, strings and arrays, as a checkpoint
is: `{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 100}`. In the file each array has a
name, its path in the tree; the rest stands beside them as JSON. Loading gives the same tree and runs no code. A file
is written whole or not at all.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .engine import Value
from .files import write_whole

TREE = "tinygrad_attn"                      # where the JSON is: the key of the metadata, the member of the archive
MAX_BYTES = 8 << 30


def save(path: str | Path, state: Mapping[str, Any]) -> None:
    """Write a state dict, or a tree of them, to a file that ends in .safetensors or .npz.

    The old file, if there is one, stays until the new one is complete. A name is a string of any characters, "../x" as
    well, since it is a key and never a path. What is no array, number, string, bool, None, list, tuple or dict is a
    TypeError that names where it is; an ending that is neither of the two a ValueError; .safetensors without the
    package of that name an ImportError. `load` reads it again.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(f"{folder}/all.npz", {"step": 3, "model": {"weight": np.eye(2)}})
    ...     load(f"{folder}/all.npz")
    {'step': 3, 'model': {'weight': array([[1., 0.],
           [0., 1.]])}}
    """
    path = Path(path)
    kind = _kind("save", path)
    if not isinstance(state, Mapping):
        raise TypeError(f"save: a state is a dict, as model.state_dict() gives, not a {type(state).__name__}")
    arrays: dict[str, np.ndarray] = {}
    tree = _packed(state, (), arrays)
    flat = all(isinstance(value, (np.ndarray, Value)) for value in state.values())     # names tell all there is
    text = None if flat else json.dumps(tree)
    write_whole(path, _safetensors(arrays, text) if kind == ".safetensors" else _npz(arrays, text))


def load(path: str | Path, *, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """What `save` wrote, or another program: arrays by name, or the tree.

    A file that is cut off, of another kind, pickled, or that holds more than `max_bytes`, 8 GiB, is a ValueError, and
    nothing of it has been run. bfloat16, which NumPy has not, becomes float32, without loss.
    """
    path = Path(path)
    kind = _kind("load", path)
    size = path.stat().st_size
    if size > max_bytes:
        raise _too_large(path, size, max_bytes)
    content = path.read_bytes()
    try:
        arrays, text = (_from_safetensors if kind == ".safetensors" else _from_npz)(path, content, max_bytes)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, UnicodeDecodeError, NotImplementedError) as error:
        raise _unreadable(path, content, str(error)) from error
    if text is None:
        return arrays
    try:
        return _unpacked(json.loads(text), arrays)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"load: {path}: what it says of its own structure is damaged: {error!r}") from error


def _kind(caller: str, path: Path) -> str:
    if path.suffix not in (".safetensors", ".npz"):
        raise ValueError(f"{caller}: {path.name!r} ends in neither .safetensors nor .npz")
    return path.suffix


# ------------------------------------------------------------------------------------------------- trees as JSON

def _packed(thing: Any, where: tuple[str, ...], arrays: dict[str, np.ndarray]) -> Any:
    """The tree without its arrays, each of which goes into `arrays` under a name, which stands in its place."""
    if isinstance(thing, (np.ndarray, np.generic, Value)):
        array = np.asarray(thing._array if isinstance(thing, Value) else thing)
        if array.dtype.kind not in "biufc":
            raise TypeError(f"save: {'/'.join(where)} is an array of dtype {array.dtype}; only numbers can be saved")
        name = "/".join(where)
        while name in arrays:               # "a/b" may be one key, or two
            name += "'"
        arrays[name] = array
        return {"array": name}
    if isinstance(thing, Mapping):
        for key in thing:
            if not isinstance(key, str):
                raise TypeError(f"save: {'/'.join(where) or 'the state'} has the key {key!r}; keys must be strings")
        return {"dict": {key: _packed(item, (*where, key), arrays) for key, item in thing.items()}}
    if isinstance(thing, (list, tuple)):
        return {type(thing).__name__ if type(thing) is tuple else "list":
                [_packed(item, (*where, str(i)), arrays) for i, item in enumerate(thing)]}
    if thing is None or isinstance(thing, (bool, int, float, str)):
        return {"value": thing}
    raise TypeError(f"save: {'/'.join(where)} is a {type(thing).__name__}; what can be saved are arrays, numbers, "
                    "strings, None, and lists and dicts of them")


def _unpacked(tree: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    ((kind, content),) = tree.items()
    if kind == "array":
        return arrays[content]
    if kind == "dict":
        return {key: _unpacked(item, arrays) for key, item in content.items()}
    if kind in ("list", "tuple"):
        items = [_unpacked(item, arrays) for item in content]
        return items if kind == "list" else tuple(items)
    if kind == "value":
        return content
    raise ValueError(f"a part of the unknown kind {kind!r}")


# ------------------------------------------------------------------------------------------------------- formats

def _npz(arrays: Mapping[str, np.ndarray], text: str | None) -> bytes:
    """A zip of one .npy a name. It is not left to np.savez, for which some names, "file", mean something."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, array in arrays.items():
            if "\0" in name:
                raise ValueError(f"save: the name {name!r} has a zero character, which ends names in a .npz; "
                                 ".safetensors takes it")
            with archive.open(zipfile.ZipInfo(name + ".npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        if text is not None:
            archive.writestr(zipfile.ZipInfo(f"{TREE}.json"), text)
    return out.getvalue()


def _from_npz(path: Path, content: bytes, max_bytes: int) -> tuple[dict[str, np.ndarray], str | None]:
    arrays, text = {}, None
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        total = sum(info.file_size for info in archive.infolist())
        if total > max_bytes:
            raise _too_large(path, total, max_bytes)
        for info in archive.infolist():
            data = archive.read(info)
            if info.filename == f"{TREE}.json":
                text = data.decode()
            elif info.filename.endswith(".npy"):
                arrays[info.filename[:-4]] = _from_npy(path, info.filename[:-4], data)
            else:
                raise ValueError(f"load: {path}: {info.filename!r} is no array; it is a zip, but no .npz")
    return arrays, text


def _from_npy(path: Path, name: str, data: bytes) -> np.ndarray:
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        shape, fortran, dtype = {(1, 0): np.lib.format.read_array_header_1_0,
                                 (2, 0): np.lib.format.read_array_header_2_0}[version](stream)
    except (ValueError, KeyError) as error:
        raise ValueError(f"load: {path}: {name!r} is no array: {error}") from error
    if dtype.hasobject:
        raise ValueError(f"load: {path}: {name!r} is an array of pickled objects, and a pickle can run anything; save "
                         "numbers instead")
    if len(data) - stream.tell() != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"load: {path}: {name!r} says that it is {shape} of {dtype}, and has "
                         f"{len(data) - stream.tell()} bytes")
    array = np.frombuffer(data, dtype, offset=stream.tell())
    return array.reshape(shape[::-1]).T.copy() if fortran else array.reshape(shape).copy()


def _safetensors(arrays: Mapping[str, np.ndarray], text: str | None) -> bytes:
    package = _package()
    for name, array in arrays.items():
        if array.dtype.kind == "c":
            raise TypeError(f"save: {name} is complex, which .safetensors has not; .npz does")
    flat = {name: np.array(array, array.dtype.newbyteorder("="), order="C", ndmin=0) for name, array in arrays.items()}
    return package.save(flat, metadata=None if text is None else {TREE: text})


def _from_safetensors(path: Path, content: bytes, max_bytes: int) -> tuple[dict[str, np.ndarray], str | None]:
    package = _package()
    try:
        entries = package.deserialize(content)
    except package.SafetensorError as error:
        raise _unreadable(path, content, str(error)) from error
    arrays = {}
    for name, entry in entries:
        kind, data = entry["dtype"], entry["data"]
        if kind == "BF16":                  # the upper half of a float32
            array = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
        elif kind in DTYPES:
            array = np.frombuffer(data, DTYPES[kind]).copy()
        else:
            raise ValueError(f"load: {path}: {name!r} has dtype {kind}, which NumPy has not")
        arrays[name] = array.reshape(entry["shape"])
    header = json.loads(content[8:8 + int.from_bytes(content[:8], "little")])
    return arrays, header.get("__metadata__", {}).get(TREE)


DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
          "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?"}


class _package:
    """The package safetensors, which is optional."""

    def __init__(self) -> None:
        try:
            from safetensors import SafetensorError, deserialize
            from safetensors.numpy import save
        except ImportError as error:
            raise ImportError("a .safetensors file needs the package: pip install safetensors, the extra "
                              "tinygrad_attn[nn]; .npz does without") from error
        self.save, self.deserialize, self.SafetensorError = save, deserialize, SafetensorError


def _too_large(path: Path, size: int, max_bytes: int) -> ValueError:
    return ValueError(f"load: {path}: it holds {size:,} bytes, more than max_bytes={max_bytes:,}; if that is meant, "
                      "give a larger max_bytes")


def _unreadable(path: Path, content: bytes, reason: str) -> ValueError:
    """What the file is instead, as far as its first bytes tell."""
    kind = ("it is empty" if not content else
            "it is pickled, and a pickle can run anything: it is not read" if content[:1] == b"\x80" else
            "a zip, as .npz is, and as PyTorch's .pt is" if content[:2] == b"PK" and path.suffix != ".npz" else
            "a single NumPy array, .npy" if content[:6] == b"\x93NUMPY" else
            f"it is cut off, damaged, or no {path.suffix} file")
    return ValueError(f"load: {path}: {kind} ({reason})")
