"""A network is an object: its parameters are its attributes, and calling it computes.

Nothing is registered. A module's parameters are found by looking: at its attributes that are Parameters, at those that
are modules, and into lists, tuples and dicts of them. So `__init__` needs no `super().__init__()`, and a list of layers
is a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from ..engine import Value
from ..scope import scope
from ..tensor import Tensor


class Parameter(Tensor):
    """A leaf that training moves: a Tensor that needs its gradient, and that a `Module` finds among its attributes.

    `requires_grad=False` freezes it; it stays a parameter.

    >>> Parameter([1.0, 2.0])
    Tensor([1., 2.], requires_grad=True)
    """

    __slots__ = ()

    def __init__(self, data: Any, requires_grad: bool = True, *, dtype: Any = None, name: str | None = None) -> None:
        super().__init__(data, requires_grad, dtype=dtype, name=name)
        if self.dtype.kind != "f":
            raise TypeError(f"a Parameter is of a floating dtype, not {self.dtype}: write 1.0 for 1, or dtype=float")


class Mismatches(NamedTuple):
    """The keys that a module has and a state dict lacks, and those that only the state dict has."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def _members(thing: Any) -> Iterator[tuple[str, Any]]:
    """What may hold parameters: the attributes of a module, the items of a list or dict, by name."""
    if isinstance(thing, Module):
        return iter(vars(thing).items())
    if isinstance(thing, (list, tuple)):
        return ((str(i), item) for i, item in enumerate(thing))
    return ((str(key), item) for key, item in thing.items()) if isinstance(thing, dict) else iter(())


def _walk(thing: Any, seen: set[int], name: str = "", again: bool = False) -> Iterator[tuple[str, Any]]:
    """Every module and parameter from `thing` down, with its dotted name: each once, or, with `again`, under each of
    its names. What holds itself, as a child that knows its parent does, is not entered again from within."""
    if id(thing) in seen:
        return
    if isinstance(thing, (Module, Parameter)):
        yield name, thing
    seen.add(id(thing))
    for key, item in _members(thing):
        if isinstance(item, (Module, Parameter, list, tuple, dict)):
            yield from _walk(item, seen, f"{name}.{key}" if name else key, again)
    if again:
        seen.remove(id(thing))


class Module:
    """Something that computes and has parameters. Subclasses define `forward`; calling the module runs it.

    Parameters are found among the attributes: Parameters, modules, and lists, tuples and dicts of them. A plain Tensor
    is none, and an array is not in the state dict. In a picture, each call is a box with the name of the class.

    >>> class Line(Module):
    ...     def __init__(self):
    ...         self.slope, self.offset = Parameter(2.0), Parameter(1.0)
    ...     def forward(self, x):
    ...         return self.slope * x + self.offset
    >>> line = Line()
    >>> line(3.0).item(), [name for name, _ in line.named_parameters()]
    (7.0, ['slope', 'offset'])
    """

    training = True                         # what train() and eval() set; dropout acts only in training

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, item in vars(cls).items():
            if isinstance(item, (Module, Parameter)):
                raise TypeError(f"{cls.__name__}.{name} belongs to the class, and all its instances would share it; "
                                f"make it in __init__, as self.{name}")

    def __setattr__(self, name: str, item: Any) -> None:
        if isinstance(vars(self).get(name), Parameter) and not (item is None or isinstance(item, Parameter)):
            raise TypeError(f"{type(self).__name__}.{name} is a Parameter, and would be one no more; give it new data, "
                            f".{name}.data = ..., or put a Parameter in its place")
        super().__setattr__(name, item)

    def forward(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward(self, ...): it says what a call computes")

    def __call__(self, *args: Any, **options: Any) -> Any:
        with scope(type(self).__name__):
            return self.forward(*args, **options)

    def named_modules(self) -> Iterator[tuple[str, Module]]:
        """This module, as "", and all in it, each once, with its dotted name."""
        return ((name, item) for name, item in _walk(self, set()) if isinstance(item, Module))

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """The parameters and their dotted names. A tied one, which stands in two places, comes once, by its first
        name; two that are merely equal are two."""
        return ((name, item) for name, item in _walk(self, set()) if isinstance(item, Parameter))

    def parameters(self) -> Iterator[Parameter]:
        """The parameters, each once: what an optimiser is given."""
        return (parameter for _, parameter in self.named_parameters())

    def _by_name(self) -> dict[str, Parameter]:
        """The parameters by all their names."""
        found: dict[str, Parameter] = {}
        for name, item in _walk(self, set(), again=True):
            if isinstance(item, Parameter) and found.setdefault(name, item) is not item:
                raise ValueError(f"{type(self).__name__}: two parameters have the name {name!r}; no key may have a "
                                 "dot, and 1 and '1' are the same")
        return found

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters."""
        for parameter in self.parameters():
            parameter.zero_grad()

    def train(self, mode: bool = True) -> Self:
        """Set this module, and all in it, to training; with False, to evaluation. Returns the module."""
        for _, module in self.named_modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Set this module, and all in it, to evaluation: dropout does nothing."""
        return self.train(False)

    def apply(self, function: Callable[[Module], Any]) -> Self:
        """Call the function with each module in this one, children first, this one last. Returns the module."""
        for module in _children_first(self, set()):
            function(module)
        return self

    def astype(self, dtype: Any) -> Self:
        """Convert all parameters, in place, to a floating dtype; an optimiser goes on with the same parameters,
        whose gradients are forgotten. Returns the module."""
        if np.dtype(dtype).kind != "f":
            raise TypeError(f"{type(self).__name__}.astype: parameters are of a floating dtype, not {np.dtype(dtype)}")
        for parameter in self.parameters():
            Tensor.__init__(parameter, parameter.data, parameter.requires_grad, dtype=dtype, name=parameter.name)
        return self

    def state_dict(self) -> dict[str, np.ndarray]:
        """A copy of every parameter, by its dotted name; a tied one by each of its names, as in PyTorch."""
        return {name: parameter.numpy().copy() for name, parameter in self._by_name().items()}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> Mismatches:
        """Give the parameters the arrays of `state`, which may be PyTorch's, in the dtype that each parameter has.

        All is checked before anything changes: a ValueError lists every name that is missing or unexpected, and every
        array of another shape, or not of floats. With `strict=False` names may be missing or unexpected; they are
        returned, and what fits is loaded. A tied parameter needs one of its names, and if both are there, both alike.
        """
        if not isinstance(state, Mapping):
            raise TypeError(f"{type(self).__name__}.load_state_dict: it takes arrays by name, a dict, not a "
                            f"{type(state).__name__}; serialize.load(path) reads one from a file")
        owners = self._by_name()
        found: dict[Parameter, tuple[str, np.ndarray]] = {}
        faults: list[str] = []
        for name, parameter in owners.items():
            if name not in state:
                continue
            new = _as_floats(state[name], parameter.dtype)
            if isinstance(new, str):
                faults.append(f"{name}: {new}")
            elif new.shape != parameter.shape:
                faults.append(f"{name}: expected shape {parameter.shape}, found {new.shape}")
            elif parameter in found and not np.array_equal(found[parameter][1], new, equal_nan=True):
                faults.append(f"{name}: it is one with {found[parameter][0]}, but their arrays differ")
            else:
                found.setdefault(parameter, (name, new))
        given = {id(owners[name]) for name in owners if name in state}
        missing = [name for name, parameter in owners.items() if id(parameter) not in given]
        unexpected = [name for name in state if name not in owners]
        if strict:
            faults += [f"{name}: missing; expected shape {owners[name].shape}" for name in missing]
            faults += [f"{name}: unexpected" for name in unexpected]
        if faults:
            lines = "\n  ".join(faults)
            raise ValueError(f"{type(self).__name__}.load_state_dict: nothing was loaded, since {len(faults)} of the "
                             f"names do not fit:\n  {lines}")
        for parameter, (_, new) in found.items():
            parameter.data = new
        return Mismatches(missing, unexpected)

    def facts(self) -> str:
        """What `repr` tells in parentheses: sizes and options."""
        return ""

    def __repr__(self) -> str:
        return "\n".join(_outline(self, set()))


def _as_floats(new: Any, dtype: np.dtype) -> np.ndarray | str:
    """The array in that dtype, or why it cannot be."""
    if isinstance(new, Value):
        new = new._array
    if hasattr(new, "detach"):              # a tensor of PyTorch's; NumPy has no bfloat16
        new = new.detach().float() if "bfloat16" in str(new.dtype) else new.detach()
    try:
        new = np.asarray(new)
    except (ValueError, TypeError) as error:
        return f"it is no array: {error}"
    if new.dtype.kind != "f":
        return f"expected floats, found {new.dtype}"
    with np.errstate(over="ignore"):
        fitting = new.astype(dtype)
    if np.isinf(fitting).sum() != np.isinf(new).sum():
        return f"its numbers are too large for {dtype}"
    return fitting


def _children(thing: Any, name: str = "", within: tuple[int, ...] = ()) -> Iterator[tuple[str, Module]]:
    """The modules directly below: attributes, and items of lists and dicts that are attributes."""
    for key, item in _members(thing):
        if isinstance(item, Module):
            yield name + key, item
        elif isinstance(item, (list, tuple, dict)) and id(item) not in within:
            yield from _children(item, f"{name}{key}.", (*within, id(item)))


def _children_first(module: Module, seen: set[int]) -> Iterator[Module]:
    """Every module once, after those in it."""
    seen.add(id(module))
    for _, child in _children(module):
        if id(child) not in seen:
            yield from _children_first(child, seen)
    yield module


def _outline(module: Module, seen: set[int], within: tuple[int, ...] = ()) -> list[str]:
    """A line for the module and for each in it; neighbours that look the same are one, with their number. A child that
    knows its parent does not show it."""
    count = sum(parameter.size for parameter in module.parameters())
    counted = [f"{count:,} parameter{'' if count == 1 else 's'}"] if count else []
    title = f"{type(module).__name__}({', '.join([*filter(None, [module.facts()]), *counted])})"
    if id(module) in seen:
        return [f"{title}, as above"]
    seen.add(id(module))
    within, lines = (*within, id(module)), [title]
    shown = [(name, _outline(child, seen, within)) for name, child in _children(module) if id(child) not in within]
    while shown:
        name, outline = shown[0]
        alike = next((i for i, (_, other) in enumerate(shown) if other != outline), len(shown))
        label = name if alike == 1 else f"{name} … {shown[alike - 1][0]}, {alike} times"
        lines += [f"  {label}: {outline[0]}", *(f"  {line}" for line in outline[1:])]
        del shown[:alike]
    return lines
