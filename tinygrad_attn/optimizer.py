"""A side room on floor 4. What all optimisers share: groups of parameters, checks, and saved states.

How a parameter moves is told in `optim.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from .errors import GraphError, ShapeError
from .flat import Flat
from .ops import at_least_single
from .tensor import Tensor

Schedule = Callable[[int], float]


class Optimizer:
    """What all optimisers share: parameter groups, the count of steps, and their state.

    `parameters` are Tensors, or dicts of `params` with options of their own, one dict for each group. A tensor that is
    there twice, as tied weights may be, is stepped once; in two groups it is a ValueError. `step()` moves each
    parameter that has a gradient; one without, `.grad` being None, is left alone, with its state: it was no part of
    the loss. (A gradient of zeros is one: momentum and decay go on.) Options out of range are a ValueError, here and
    in `step()`.
    """

    defaults: dict[str, Any]

    def __init__(self, parameters: Iterable[Any], lr: float | Schedule, **options: Any) -> None:
        self.defaults, self.steps = {"lr": lr, **options}, 0
        if isinstance(parameters, (Tensor, Mapping, np.ndarray)) or not isinstance(parameters, Iterable):
            raise TypeError(f"{self._name}: parameters must be several, as model.parameters() gives; one is [w]")
        given = list(parameters)
        if not given:
            raise ValueError(f"{self._name}: there are no parameters. If model.parameters() was used before, it is "
                             "used up: make it anew; and a layer counts only if it is an attribute of its module")
        grouped = [isinstance(item, Mapping) for item in given]
        if any(grouped) and not all(grouped):
            raise TypeError(f"{self._name}: give Tensors, or a dict of params and options for each group, not both")
        self.param_groups: list[dict[str, Any]] = []
        self.state: dict[Tensor, dict[str, Any]] = {}
        self._flats: dict[tuple[Any, ...], Flat] = {}
        for group in (given if all(grouped) else [{"params": given}]):
            self._add(dict(group))

    _name = property(lambda self: type(self).__name__)

    def _add(self, group: dict[str, Any]) -> None:
        params = group.pop("params", ())
        params, taken = [params] if isinstance(params, Tensor) else list(params), set(self._all())
        if not params:
            raise ValueError(f"{self._name}: a group has no parameters; a generator that was used before is empty")
        if unknown := set(group) - set(self.defaults):
            raise TypeError(f"{self._name}: a group has {', '.join(sorted(unknown))}; there is "
                            f"{', '.join(self.defaults)}")
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"{self._name}: a parameter is a {type(p).__name__}, and must be a Tensor")
            if p.node:
                raise GraphError(f"{self._name}: a parameter of shape {p.shape} is what {p.node.op.name} computed; "
                                 "only leaves can be moved")
            if p.dtype.kind != "f":
                raise TypeError(f"{self._name}: a parameter of dtype {p.dtype} has no gradient")
            if p in taken:
                raise ValueError(f"{self._name}: a parameter of shape {p.shape} is in two groups")
        group = {**self.defaults, **group}
        self._checked(group)
        self.param_groups.append({"params": list(dict.fromkeys(params)), **group})

    def _checked(self, group: Mapping[str, Any]) -> dict[str, Any]:
        """The options of a group, each in its range, as Python's numbers, which leave float32 what it is."""
        options = {name: value for name, value in group.items() if name != "params"}
        for name, value in options.items():
            if name == "betas":
                if not (isinstance(value, (tuple, list)) and len(value) == 2 and all(map(_below_1, value))):
                    raise ValueError(f"{self._name}: betas={value!r}; they are two numbers, at least 0 and below 1")
                options[name] = tuple(map(float, value))
            elif name == "momentum" and not _below_1(value):
                raise ValueError(f"{self._name}: momentum={value!r}; it must be at least 0 and below 1")
            elif name != "nesterov" and not (name == "lr" and callable(value)):
                options[name] = at_least_0(self._name, name, value)
        if options.get("nesterov") and not options["momentum"]:
            raise ValueError(f"{self._name}: nesterov=True looks ahead along the momentum, and there is none")
        return options

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "lr":
            raise AttributeError(f"{self._name}: each group has a rate: optimizer.param_groups[0]['lr'] = {value!r}")
        super().__setattr__(name, value)

    def lr(self, group: int = 0) -> float:
        """The rate of the next step."""
        rate = self.param_groups[group]["lr"]
        return float(rate(self.steps) if callable(rate) else rate)

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for p in self._all():
            p.zero_grad()
        for flat in self._flats.values():
            flat.make_room()

    def step(self) -> None:
        """Move each parameter that has a gradient. If something does not fit, none is moved."""
        options = [self._checked({**group, "lr": self.lr(i)}) for i, group in enumerate(self.param_groups)]
        together: dict[Any, dict[Tensor, Any]] = {}
        elementwise = next(vars(cls).get("elementwise", False) for cls in type(self).__mro__
                           if {"elementwise", "moved"} & vars(cls).keys())
        for i, group in enumerate(self.param_groups):
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state.get(p, {})
                    flat = elementwise and p.dtype.char in "fd" and all(
                        x.dtype == p.dtype for x in state.values() if isinstance(x, np.ndarray))
                    alike = i, p.dtype.char if flat else p, state.get("step", 0), frozenset(state), flat
                    together.setdefault(alike, {})[p] = self._gradient(p)
        flats = {}
        for (i, *_, flat), gradients in together.items():
            params, states = list(gradients), [self.state.setdefault(p, {"step": 0}) for p in gradients]
            if flat:
                key = params[0].dtype.char, *map(id, params)
                flats[key] = self._flats.get(key) or Flat(params)
                flats[key].move(self.moved, list(gradients.values()), states, self.keeps(options[i]), options[i])
            else:
                (p, g), (state,) = *gradients.items(), states
                state["step"] += 1
                p.data = self.moved(at_least_single(p.data), g, state, **options[i])
        self._flats = flats
        self.steps += bool(together)

    def _gradient(self, p: Tensor) -> Any:
        """That of a parameter, in its dtype, but in single precision at least."""
        g = np.asarray(p.grad)
        if g.shape != p.shape:
            raise ShapeError(f"{self._name}: a parameter of shape {p.shape} has a gradient of shape {g.shape}")
        if g.dtype.kind not in "fiu":
            raise TypeError(f"{self._name}: a parameter of shape {p.shape} has a gradient of dtype {g.dtype}")
        return g.astype(np.result_type(p.dtype, np.float32), copy=False)

    moved: Callable[..., Any]               # moved(w, g, state, *, lr, …): the new w, given its gradient and own state
    # Whether an element's move depends on that element alone, so that all can be moved as one array. A class with a
    # formula of its own says so again.
    elementwise = False

    def keeps(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """The names of the arrays that `moved` keeps in its state."""
        return ()

    def state_dict(self) -> dict[str, Any]:
        """A copy of all that the next step depends on, besides the parameters: numbers, and arrays by the place of
        their parameter. A schedule is code, and is not in it; the number of steps is."""
        number = {p: i for i, p in enumerate(self._all())}
        return {"optimizer": self._name, "steps": self.steps,
                "param_groups": [{**{name: None if callable(value) else value for name, value in group.items()},
                                  "params": [number[p] for p in group["params"]]} for group in self.param_groups],
                "shapes": [list(p.shape) for p in number],
                "state": [{name: np.array(x) if isinstance(x, np.ndarray) else x for name, x in
                           self.state.get(p, {}).items()} for p in number]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where `state_dict()` was taken, bit for bit, on the same parameters in the same order.

        Options are taken over as well; a schedule stays the one that this optimiser has. The state of another kind of
        optimiser, or of other parameters, is a ValueError that lists all that does not fit, and changes nothing.
        """
        try:
            faults = self._faults(state)
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            faults = [f"it is damaged: {error!r}"]
        if faults:
            lines = "\n  ".join(faults)
            raise ValueError(f"{self._name}.load_state_dict: nothing was loaded:\n  {lines}")
        self.steps = state["steps"]
        for group, saved in zip(self.param_groups, state["param_groups"]):
            group.update({name: tuple(value) if isinstance(value, list) else value for name, value in saved.items()
                          if name != "params" and value is not None})
        self.state = {p: {name: np.array(x) if isinstance(x, np.ndarray) else x for name, x in own.items()}
                      for p, own in zip(self._all(), state["state"]) if own}

    def _all(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def _faults(self, state: Mapping[str, Any]) -> list[str]:
        """All that keeps this state from being that of these parameters."""
        keys = {"optimizer", "steps", "param_groups", "shapes", "state"}
        if not isinstance(state, Mapping) or not keys <= set(state):
            return ["it is no state of an optimiser"]
        faults, parameters = [], self._all()
        if state["optimizer"] != self._name:
            faults.append(f"it is the state of {state['optimizer']}")
        if not _count(state["steps"]):
            faults.append(f"steps={state['steps']!r} is no number of steps")
        ours, theirs = ([len(group["params"]) for group in groups] for groups in
                        (self.param_groups, state["param_groups"]))
        if ours != theirs:
            faults.append(f"groups of {ours} parameters expected, found {theirs}")
        if not len(state["shapes"]) == len(state["state"]) == sum(theirs):
            faults.append(f"of {sum(theirs)} parameters it has {len(state['shapes'])} shapes and {len(state['state'])} "
                          "states")
        for i, (p, shape, own) in enumerate(zip(parameters, state["shapes"], state["state"])):
            found = {tuple(shape), *(x.shape for name, x in own.items() if name != "step")}
            if found != {p.shape}:
                faults.append(f"parameter {i}: expected shape {p.shape}, found {', '.join(map(str, sorted(found)))}")
        for i, (group, saved) in enumerate(zip(self.param_groups, state["param_groups"])):
            options = {name: value for name, value in saved.items() if name != "params"}
            if set(options) != set(self.defaults):
                faults.append(f"group {i}: expected the options {', '.join(self.defaults)}, found {', '.join(options)}")
                continue
            if callable(group["lr"]) != (options["lr"] is None):
                faults.append(f"group {i}: " + ("a rate expected, found a schedule" if options["lr"] is None else
                                                "a schedule expected, found a rate"))
            try:
                options = self._checked({**options, "lr": 0.0 if options["lr"] is None else options["lr"]})
            except ValueError as error:
                faults.append(f"group {i}: {error}")
                continue
            for number in saved["params"]:
                own = state["state"][number] if 0 <= number < len(state["state"]) else {}
                if own and not ({"step", *self.keeps(options)} <= set(own) and _count(own["step"])):
                    faults.append(f"parameter {number}: expected step, {', '.join(self.keeps(options))}, found "
                                  f"{', '.join(f'{name}={x}' if name == 'step' else name for name, x in own.items())}")
        return faults

    def __repr__(self) -> str:
        groups = [f"{len(group['params'])} parameters, " + ", ".join(
            f"{name}={_shown(x)}" for name, x in group.items() if name != "params") for group in self.param_groups]
        return f"{self._name}({'; '.join(groups)})"


def at_least_0(owner: str, name: str, value: Any) -> float:
    if isinstance(value, (int, float, np.number)) and 0 <= value < math.inf:
        return float(value)
    raise ValueError(f"{owner}: {name}={value!r}; it must be a number of 0 or more")


def _shown(value: Any) -> str:
    """A schedule by the name of what made it."""
    return getattr(value, "__qualname__", repr(value)).partition(".")[0] if callable(value) else repr(value)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _below_1(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and bool(0 <= value < 1)
