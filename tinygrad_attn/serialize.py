"""Floor 6. Weights and checkpoints on disk: safetensors, which PyTorch reads, or NumPy's npz; never pickle.

What is saved is a state dict, arrays by name, or a *tree* of dicts, lists, numbers, strings and arrays, as a
checkpoint is: `{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 100}`. In the file each
array has a name, its path in the tree; the rest stands beside them as JSON. Loading gives the same tree (NumPy's
scalars as arrays of shape ()) and runs no code. What dropout draws is in no state dict: save the generator's
`rng.bit_generator.state` beside them. A file is written whole or not at all.
"""

from __future__ import annotations

import io
import json
import math
import warnings
import zipfile
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
    flat = all(isinstance(value, (np.ndarray, Value)) for value in state.values())     # names tell all there is
    try:
        tree = json.dumps(_packed(state, (), arrays))
    except RecursionError:
        raise ValueError("save: the state holds itself, or is nested too deep") from None
    write_whole(path, (_safetensors if kind == ".safetensors" else _npz)(arrays, None if flat else tree))


def load(path: str | Path, *, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """What `save` wrote, or another program: arrays by name, or the tree.

    A file that is cut off, of another kind, pickled, or that holds more than `max_bytes`, 8 GiB, is a ValueError, and
    nothing of it has been run. bfloat16, which NumPy has not, becomes float32, without loss.
    """
    path = Path(path)
    kind = _kind("load", path)
    size = path.stat().st_size
    if size > max_bytes:
        raise ValueError(f"load: {path}: {_too_large(size, max_bytes)}")
    content = path.read_bytes()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")                 # NumPy's, of headers that are odd
            arrays, text = (_from_safetensors if kind == ".safetensors" else _from_npz)(content, max_bytes)
            return arrays if text is None else _unpacked_dict(text, arrays)
    except _Refused as error:
        raise ValueError(f"load: {path}: {error}") from None
    except (ImportError, KeyboardInterrupt):
        raise
    except Exception as error:              # whatever a parser says of bytes that are not what they should be
        raise ValueError(f"load: {path}: {_instead(path, content)} ({error!r})") from error


class _Refused(ValueError):
    """What can be told of a file without its parser's words."""


def _kind(caller: str, path: Path) -> str:
    if path.suffix not in (".safetensors", ".npz"):
        raise ValueError(f"{caller}: {path.name!r} ends in neither .safetensors nor .npz")
    return path.suffix


# ------------------------------------------------------------------------------------------------- trees as JSON

def _packed(thing: Any, where: tuple[str, ...], arrays: dict[str, np.ndarray]) -> Any:
    """The tree without its arrays, each of which goes into `arrays` under a name, which stands in its place."""
    place = "/".join(where) or "the state"
    if thing is None or (isinstance(thing, (bool, float, str)) and not isinstance(thing, np.number)):
        return {"value": thing}
    if isinstance(thing, int):
        if thing.bit_length() > 14_000:
            raise ValueError(f"save: {place} is a number of {thing.bit_length()} bits, which JSON readers refuse")
        return {"value": thing}
    if isinstance(thing, (np.ndarray, np.generic, Value)):
        array = np.asarray(thing._array if isinstance(thing, Value) else thing)
        if isinstance(thing, np.ma.MaskedArray):
            raise TypeError(f"save: {place} is a masked array, and would lose its mask; save its data and mask apart")
        if array.dtype.kind not in "biufc":
            raise TypeError(f"save: {place} is an array of dtype {array.dtype}; only numbers can be saved")
        name = "/".join(where)
        while name in arrays:               # "a/b" may be one key, or two
            name += "'"
        arrays[name] = array
        return {"array": name}
    if isinstance(thing, Mapping):
        for key in thing:
            if not isinstance(key, str):
                raise TypeError(f"save: {place} has the key {key!r}; keys must be strings")
        return {"dict": {key: _packed(item, (*where, key), arrays) for key, item in thing.items()}}
    if isinstance(thing, (list, tuple)):
        return {"tuple" if isinstance(thing, tuple) else "list":
                [_packed(item, (*where, str(i)), arrays) for i, item in enumerate(thing)]}
    raise TypeError(f"save: {place} is a {type(thing).__name__}; what can be saved are arrays, numbers, strings, None, "
                    "and lists and dicts of them")


def _unpacked_dict(text: str, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    try:
        tree = _unpacked(json.loads(text), arrays)
        if not isinstance(tree, dict):
            raise TypeError("it is no dict")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _Refused(f"what it says of its own structure is damaged: {error!r}") from error
    return tree


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
            if "\0" in name or _length(name) > 65_000:
                raise ValueError(f"save: the name {name[:40]!r} has a zero character, or is too long, for a .npz; "
                                 ".safetensors takes it")
            with archive.open(zipfile.ZipInfo(name + ".npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        if text is not None:
            archive.writestr(zipfile.ZipInfo(f"{TREE}.json"), text)
    return out.getvalue()


def _length(name: str) -> int:
    """Of a name, in bytes."""
    try:
        return len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(f"save: the name {name!r} has half of a character, and cannot be written") from None


def _from_npz(content: bytes, max_bytes: int) -> tuple[dict[str, np.ndarray], str | None]:
    arrays, text = {}, None
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        total = sum(info.file_size for info in archive.infolist())
        if total > max_bytes:
            raise _Refused(_too_large(total, max_bytes))
        for info in archive.infolist():
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise _Refused(f"{info.filename!r} is compressed by method {info.compress_type}, as .npz is not")
            with archive.open(info) as member:              # no more than the size that it tells, whatever comes out
                data = member.read(info.file_size + 1)
            if len(data) != info.file_size:
                raise _Refused(f"{info.filename!r} is not as long as it says")
            if info.filename == f"{TREE}.json":
                text = data.decode()
            elif info.filename.endswith(".npy"):
                arrays[info.filename[:-4]] = _from_npy(info.filename[:-4], data)
            else:
                raise _Refused(f"{info.filename!r} is no array; it is a zip, but no .npz")
    return arrays, text


def _from_npy(name: str, data: bytes) -> np.ndarray:
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        shape, fortran, dtype = {(1, 0): np.lib.format.read_array_header_1_0,
                                 (2, 0): np.lib.format.read_array_header_2_0}[version](stream)
    except Exception as error:              # NumPy reads it as Python's literals, and fails as Python's parser does
        raise _Refused(f"{name!r} is no array: {error!r}") from error
    if dtype.hasobject:
        raise _Refused(f"{name!r} is an array of pickled objects, and a pickle can run anything; save numbers instead")
    if dtype.kind not in "biufc":
        raise _Refused(f"{name!r} is an array of dtype {dtype}, and not of numbers")
    start = stream.tell()
    if any(n < 0 for n in shape) or len(data) - start != math.prod(shape) * dtype.itemsize:
        raise _Refused(f"{name!r} says that it is {shape} of {dtype}, and has {len(data) - start} bytes")
    array = np.frombuffer(data, dtype, offset=start)
    return array.reshape(shape[::-1]).T.copy() if fortran else array.reshape(shape).copy()


def _safetensors(arrays: Mapping[str, np.ndarray], text: str | None) -> bytes:
    package, flat = _package(), {}
    for name, array in arrays.items():
        if name == "__metadata__":
            raise ValueError("save: the name '__metadata__' means something else in .safetensors; .npz takes it")
        _length(name)
        if array.dtype.newbyteorder("<").str not in _NAMES:
            raise TypeError(f"save: {name} is {array.dtype}, which .safetensors has not; .npz does")
        flat[name] = np.array(array, array.dtype.newbyteorder("="), order="C")
    return package.save(flat, metadata=None if text is None else {TREE: text})


def _from_safetensors(content: bytes, max_bytes: int) -> tuple[dict[str, np.ndarray], str | None]:
    arrays = {}
    for name, entry in _package().deserialize(content):
        kind, data = entry["dtype"], entry["data"]
        if kind == "BF16":                  # the upper half of a float32
            array = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
        elif kind in DTYPES:
            array = np.frombuffer(data, DTYPES[kind]).copy()
        else:
            raise _Refused(f"{name!r} has dtype {kind}, which NumPy has not")
        arrays[name] = array.reshape(entry["shape"])
    header = json.loads(content[8:8 + int.from_bytes(content[:8], "little")])
    return arrays, (header.get("__metadata__") or {}).get(TREE)


DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
          "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1", "C64": "<c8"}
_NAMES = set(DTYPES.values())


class _package:
    """The package safetensors, which is optional."""

    def __init__(self) -> None:
        try:
            from safetensors import deserialize
            from safetensors.numpy import save
        except ImportError as error:
            raise ImportError("a .safetensors file needs the package: pip install safetensors, the extra "
                              "tinygrad_attn[nn]; .npz does without") from error
        self.save, self.deserialize = save, deserialize


def _too_large(size: int, max_bytes: int) -> str:
    return (f"it holds {size:,} bytes, more than max_bytes={max_bytes:,}; if that is meant, give a larger max_bytes")


def _instead(path: Path, content: bytes) -> str:
    """What the file is, as far as its first bytes tell."""
    if not content:
        return "it is empty"
    if content[:1] == b"\x80":
        return "it is pickled, and a pickle can run anything: it is not read"
    if content[:2] == b"PK" and path.suffix != ".npz":
        return "it is a zip, as .npz is, and as PyTorch's .pt is"
    if content[:6] == b"\x93NUMPY":
        return "it is a single NumPy array, .npy"
    return f"it is cut off, damaged, or no {path.suffix} file"
