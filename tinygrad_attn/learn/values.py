"""Floor 6.6. What answers return: as plain data, whether two are the same, and how a learner reads them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..engine import Value
from ..languages import _


class Strange(Exception):
    """Something that is no array and no number."""


def as_data(value: Any) -> Any:
    """Tensors as arrays, lists and tuples as tuples; numbers, arrays and texts as copies of the plain types, so that
    nothing of an answer's own code runs when they are compared and shown."""
    if isinstance(value, Value):
        return np.array(value._array)
    if isinstance(value, (list, tuple)):
        return tuple(as_data(x) for x in value)
    if isinstance(value, (set, frozenset)):
        return tuple(sorted(as_data(x) for x in value))
    if isinstance(value, dict):
        return {as_data(key): as_data(x) for key, x in value.items()}
    if isinstance(value, np.ndarray):
        array = np.array(value)
        return np.frompyfunc(as_data, 1, 1)(array) if array.dtype == object else array
    if value is None or isinstance(value, bool):
        return value
    for kind in (str, int, float, complex):
        if isinstance(value, kind):
            return getattr(kind, f"__{kind.__name__}__")(value)
    if isinstance(value, np.generic):
        return value
    raise Strange(_("it returned {kind}, which is no array and no number").format(kind=type(value).__name__))


def equal(got: Any, true: Any, tolerance: float) -> bool:
    """Whether a value is what it should be, to a tolerance relative to 1 and above. A boolean mask must be boolean; a
    list may stand for an array."""
    if isinstance(true, dict) and isinstance(got, dict):
        return got.keys() == true.keys() and all(equal(got[key], true[key], tolerance) for key in true)
    if isinstance(true, (str, dict, type(None))) or isinstance(got, (str, dict, type(None))):
        return isinstance(got, str) == isinstance(true, str) and type(got) in (type(true), np.str_) and got == true
    if isinstance(true, tuple) and isinstance(got, tuple):
        return len(got) == len(true) and all(equal(a, b, tolerance) for a, b in zip(got, true))
    try:
        a, b = np.asarray(got), np.asarray(true)
    except ValueError:                      # rows of different lengths
        return False
    kinds = {a.dtype.kind, b.dtype.kind}
    if a.shape != b.shape or kinds - set("biufc") or ("b" in kinds and len(kinds) == 2):
        return False
    if kinds == {"b"}:
        return bool(np.array_equal(a, b))
    with np.errstate(all="ignore"):
        near = np.isfinite(b) & (np.abs(a - b) <= tolerance * np.maximum(1, np.abs(b)))
        return bool(np.all((a == b) | near | (np.isnan(a) & np.isnan(b))))


def copies(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Inputs that an answer may do with what it likes."""
    return tuple(copy.deepcopy(x) if isinstance(x, (np.ndarray, list, tuple, dict, Value)) else x for x in given)


def unchanged(before: Any, after: Any) -> bool:
    """Whether an input is still what it was."""
    if isinstance(before, np.ndarray):
        return np.array_equal(before, after, equal_nan=before.dtype.kind in "fc")
    if isinstance(before, (list, tuple)):
        return len(before) == len(after) and all(map(unchanged, before, after))
    if isinstance(before, dict):
        return before.keys() == after.keys() and all(unchanged(before[key], after[key]) for key in before)
    return True


def size(given: tuple[Any, ...]) -> tuple[int, float]:
    """By which inputs are told the smallest: how many numbers, and how large."""
    arrays = [np.asarray(x) for x in _leaves(given) if isinstance(x, (np.ndarray, int, float))]
    return sum(a.size for a in arrays), sum(float(np.abs(a[np.isfinite(a)]).sum()) for a in arrays
                                            if a.dtype.kind in "iuf")


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for x in value:
            yield from _leaves(x)
    else:
        yield value


def text_of(value: Any) -> str:
    """A value as a learner would write it; a large one by its corners and its shape."""
    text = _text_of(value)
    return text if len(text) < 2000 else text[:2000] + " …"


def _text_of(value: Any) -> str:
    if isinstance(value, tuple):
        parts = [_text_of(x) for x in value[:100]]
        parts += [_("… {count} in all").format(count=len(value))] if len(value) > 100 else []
        if any("\n" in part for part in parts):             # one below the other
            return "(" + ",\n ".join(part.replace("\n", "\n ") for part in parts) + ")"
        return f"({parts[0]},)" if len(value) == 1 else f"({', '.join(parts)})"
    if isinstance(value, np.ndarray) and value.ndim:
        shown = value + 0.0 if value.dtype.kind == "f" else value       # −0 reads like a fault
        text = np.array2string(shown, precision=6, threshold=40, edgeitems=2, separator=", ", max_line_width=64)
        return text if value.size <= 40 else f"{text}\n" + _("shape {shape}").format(shape=value.shape)
    value = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
    if isinstance(value, float):
        return f"{value + 0.0:.10g}"
    if isinstance(value, int) and value.bit_length() > 1000:
        return _("an integer of {count} bits").format(count=value.bit_length())
    return getattr(value, "__name__", _("a function")) if callable(value) else repr(value)


def beside(got: Any, true: Any) -> str:
    """A value as it is shown beside the right one: with what the numbers alone do not say."""
    if got is None and true is not None:
        return _("None, as a function gives that has no return")
    text = text_of(got)
    if isinstance(true, tuple) and not (isinstance(got, tuple) and len(got) == len(true)):
        return f"{text}\n" + _("expected is {form}").format(form=form(got, true))
    if isinstance(true, (str, tuple, dict, type(None))) or isinstance(got, (str, tuple, dict, type(None))):
        return text
    a, b = np.asarray(got), np.asarray(true)
    if a.shape != b.shape:
        return f"{text}\n" + _("of shape {got}, expected is {right}").format(got=a.shape, right=b.shape)
    numbers = {a.dtype.kind, b.dtype.kind} <= set("iufc")
    if a.dtype.kind != b.dtype.kind and not numbers:
        return f"{text}\n" + _("of dtype {got}, expected is {right}").format(got=a.dtype, right=b.dtype)
    if a.ndim and a.size and numbers and np.isfinite(a).all():
        with np.errstate(all="ignore"):
            gaps = np.abs(a - b)
        place = np.unravel_index(int(gaps.argmax()), a.shape)
        return f"{text}\n" + _("farthest off, by {gap:.3g}, at {place}").format(
            gap=float(gaps[place]), place=[int(i) for i in place])
    return text


def form(got: Any, true: Any) -> str:
    """What sort of thing is asked for, if it is another sort; of a prediction nothing more is told."""
    kinds = {str: _("a text, in quotation marks"), tuple: _("a tuple"), dict: _("a dict")}
    number = _("a number")
    asked = next((name for kind, name in kinds.items() if isinstance(true, kind)), number)
    if isinstance(true, tuple) and (not isinstance(got, tuple) or len(got) != len(true)):
        return _("a tuple of {count}").format(count=len(true))
    if isinstance(true, (np.ndarray, np.generic)) and np.ndim(true):
        return "" if np.shape(got) == true.shape else \
            _("an array of shape {shape}").format(shape=true.shape)
    other = next((name for kind, name in kinds.items() if isinstance(got, kind)), number)
    return asked if asked != other else ""
