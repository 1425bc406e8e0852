"""A side room on floor 4. Optimisers: how parameters move along their gradients, and how fast.

A rate is a number, or a schedule: a function of the number of steps taken so far. So a schedule has no state of its
own, and is restored with the optimiser. Moments are kept in single precision at least. What each optimiser computes
stands in its docstring; step for step it is what PyTorch's of the same name does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .errors import AnomalyError, GraphError, ShapeError
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
                options[name] = _at_least_0(self._name, name, value)
        if options.get("nesterov") and not options["momentum"]:
            raise ValueError(f"{self._name}: nesterov=True looks ahead along the momentum, and there is none")
        return options

    def lr(self, group: int = 0) -> float:
        """The rate of the next step."""
        rate = self.param_groups[group]["lr"]
        return float(rate(self.steps) if callable(rate) else rate)

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for group in self.param_groups:
            for p in group["params"]:
                p.zero_grad()

    def step(self) -> None:
        """Move each parameter that has a gradient. If something does not fit, none is moved."""
        work = []
        for i, group in enumerate(self.param_groups):
            options = self._checked({**group, "lr": self.lr(i)})
            work += [(p, self._gradient(p), options) for p in group["params"] if p.grad is not None]
        for p, g, options in work:
            state = self.state.setdefault(p, {"step": 0})
            state["step"] += 1
            p.data = self.moved(at_least_single(p.data), g, state, **options)
        self.steps += bool(work)

    def _gradient(self, p: Tensor) -> Any:
        """That of a parameter, in its dtype, but in single precision at least."""
        g = np.asarray(p.grad)
        if g.shape != p.shape:
            raise ShapeError(f"{self._name}: a parameter of shape {p.shape} has a gradient of shape {g.shape}")
        if g.dtype.kind not in "fiu":
            raise TypeError(f"{self._name}: a parameter of shape {p.shape} has a gradient of dtype {g.dtype}")
        return g.astype(np.result_type(p.dtype, np.float32), copy=False)

    moved: Callable[..., Any]               # moved(w, g, state, *, lr, …): the new w, given its gradient and own state

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
            f"{name}={value!r}" for name, value in group.items() if name != "params") for group in self.param_groups]
        return f"{self._name}({'; '.join(groups)})"


class SGD(Optimizer):
    """w ← w − lr · g, downhill; with momentum w ← w − lr · m, where m ← momentum · m + g runs on from earlier steps.

    The first m is g. Nesterov's steps along g + momentum · m, where the momentum will have led. Weight decay adds
    weight_decay · w to g. (Polyak 1964; Nesterov 1983; Sutskever et al. 2013.)

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = SGD([w], lr=0.1)
    >>> for _ in range(50):
    ...     optimizer.zero_grad()
    ...     ((w - 3.0) ** 2).sum().backward()
    ...     optimizer.step()
    >>> w.numpy().round(3)
    array([3.])
    """

    def __init__(self, parameters: Iterable[Any], lr: float | Schedule, *, momentum: float = 0.0,
                 nesterov: bool = False, weight_decay: float = 0.0) -> None:
        super().__init__(parameters, lr, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)

    def keeps(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        return ("m",) if options["momentum"] else ()

    def moved(self, w: Any, g: Any, state: dict[str, Any], *, lr: float, momentum: float, nesterov: bool,
              weight_decay: float) -> Any:
        g = g + weight_decay * w if weight_decay else g
        if momentum:
            state["m"] = m = momentum * state["m"] + g if "m" in state else np.array(g)
            g = g + momentum * m if nesterov else m
        return w - lr * g


class Adam(Optimizer):
    """w ← w − lr · m̂ / (√v̂ + eps): steps of about lr in each direction, whatever the size of the gradient.

    m and v are running means of g and of g², m̂ and v̂ the same freed of their start at 0: m̂ = m / (1 − β₁ᵗ). Weight
    decay adds weight_decay · w to g, and so is divided by √v̂ as well; `AdamW` has the other one. (Kingma & Ba 2015.)
    """

    def __init__(self, parameters: Iterable[Any], lr: float | Schedule = 1e-3, *,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0) -> None:
        super().__init__(parameters, lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def keeps(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        return ("m", "v")

    def moved(self, w: Any, g: Any, state: dict[str, Any], *, lr: float, betas: tuple[float, float], eps: float,
              weight_decay: float) -> Any:
        g = g + weight_decay * w if weight_decay else g
        (beta1, beta2), t = betas, state["step"]
        state["m"] = m = beta1 * state.get("m", 0.0) + (1 - beta1) * g
        state["v"] = v = beta2 * state.get("v", 0.0) + (1 - beta2) * g * g
        return w - lr * m / (1 - beta1 ** t) / (np.sqrt(v / (1 - beta2 ** t)) + eps)


class AdamW(Adam):
    """Adam, with weight decay on its own: w ← (1 − lr · weight_decay) · w first, and g as it is.

    So that all weights shrink at one rate, and not those less whose gradients are large. (Loshchilov & Hutter 2019.)

    >>> w = Tensor(1.0, requires_grad=True)
    >>> optimizer = AdamW([w], lr=0.1, weight_decay=0.1)
    >>> (w * 0.5).backward()
    >>> optimizer.step()
    >>> round(w.item(), 9)                      # 0.99 − 0.1 · 0.5 / (0.5 + 1e-8)
    0.890000002
    """

    def __init__(self, parameters: Iterable[Any], lr: float | Schedule = 1e-3, *,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.01) -> None:
        super().__init__(parameters, lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def moved(self, w: Any, g: Any, state: dict[str, Any], *, lr: float, weight_decay: float, **options: Any) -> Any:
        return super().moved(w * (1 - lr * weight_decay), g, state, lr=lr, weight_decay=0.0, **options)


# --------------------------------------------------------------------------------------------------- schedules

def constant(lr: float, *, warmup: int = 0) -> Schedule:
    """lr, after a linear rise from lr / warmup in the first `warmup` steps."""
    _rate("constant", lr, warmup=warmup)
    return lambda t: lr * _rise(t, warmup)


def cosine(lr: float, steps: int, *, warmup: int = 0, least: float = 0.0) -> Schedule:
    """From lr down to `least` along half a cosine, over `steps` in all, after a linear rise in the first `warmup`; then
    `least`. (Loshchilov & Hutter 2017.)

    >>> rate = cosine(1.0, steps=110, warmup=10)
    >>> [round(rate(t), 3) for t in (0, 9, 10, 60, 110)]
    [0.1, 1.0, 1.0, 0.5, 0.0]
    """
    _rate("cosine", lr, steps=steps, warmup=warmup, least=least)
    if warmup >= steps:
        raise ValueError(f"cosine: warmup={warmup} leaves nothing of {steps} steps")

    def rate(t: int) -> float:
        if t < warmup:
            return lr * _rise(t, warmup)
        done = min(1.0, (t - warmup) / (steps - warmup))
        return least + (lr - least) * (1 + math.cos(math.pi * done)) / 2
    return rate


def step(lr: float, every: int, *, gamma: float = 0.1) -> Schedule:
    """lr, times gamma after each `every` steps.

    >>> rate = step(1.0, every=10)
    >>> [round(rate(t), 3) for t in (0, 9, 10, 20)]
    [1.0, 1.0, 0.1, 0.01]
    """
    _rate("step", lr, every=every, gamma=gamma)
    if every < 1:
        raise ValueError(f"step: every={every}; it must be 1 or more")
    return lambda t: lr * gamma ** (t // every)


def inverse_sqrt(d_model: int, *, warmup: int = 4000, factor: float = 1.0) -> Schedule:
    """factor · d_model^−½ · min(n^−½, n · warmup^−3/2) at step n = t + 1: up in a line, then down like 1/√n. (Vaswani
    et al. 2017, §5.3, eq. 3.)

    >>> rate = inverse_sqrt(512)
    >>> max(range(10000), key=rate), round(rate(3999), 6)
    (3999, 0.000699)
    """
    _rate("inverse_sqrt", 0.0, factor=factor, d_model=d_model, warmup=warmup)
    if warmup < 1 or d_model < 1:
        raise ValueError(f"inverse_sqrt: warmup={warmup}, d_model={d_model}; both must be 1 or more")
    return lambda t: factor * d_model ** -0.5 * min((t + 1) ** -0.5, (t + 1) * warmup ** -1.5)


def _rise(t: int, warmup: int) -> float:
    return min(1.0, (t + 1) / warmup) if warmup else 1.0


def _rate(owner: str, lr: float, **others: float) -> None:
    for name, value in {"lr": lr, **others}.items():
        _at_least_0(owner, name, value)


def _at_least_0(owner: str, name: str, value: Any) -> float:
    if isinstance(value, (int, float, np.number)) and 0 <= value < math.inf:
        return float(value)
    raise ValueError(f"{owner}: {name}={value!r}; it must be a number of 0 or more")


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _below_1(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and bool(0 <= value < 1)


# ---------------------------------------------------------------------------------------------------- clipping

def clip_grad_norm(parameters: Iterable[Tensor], max_norm: float) -> float:
    """Scale all gradients by one factor, so that the norm of them all is at most `max_norm`; return what it was.

    The direction stays. Parameters without gradients are passed over. A norm that is not finite, which no factor mends,
    is an AnomalyError, and nothing is changed. (Pascanu et al. 2013.)

    >>> w = Tensor([0.0, 0.0], requires_grad=True)
    >>> w.grad = np.array([3.0, 4.0])
    >>> clip_grad_norm([w], 1.0), w.grad
    (5.0, array([0.6, 0.8]))
    """
    if not isinstance(max_norm, (int, float, np.number)) or not max_norm >= 0:
        raise ValueError(f"clip_grad_norm: max_norm={max_norm!r}; it must be a number of 0 or more")
    with_grads = _with_grads(parameters)
    norm = math.hypot(*(_norm(p.grad) for p in with_grads))
    if not math.isfinite(norm):
        bad = next((p for p in with_grads if not np.isfinite(p.grad).all()), None)
        which = "it is too large" if bad is None else f"one of shape {bad.shape} is not finite" + (
            f" ({bad.name})" if bad.name else "")
        raise AnomalyError(f"clip_grad_norm: the norm of the gradients is {norm}: {which}; `with detect_anomaly():` "
                           "finds the op that it came from")
    if norm > max_norm:
        for p in with_grads:                # in single precision at least, in which a small factor has its digits
            p.grad = (at_least_single(p.grad) * float(max_norm / norm)).astype(p.grad.dtype)
    return norm


def _norm(g: np.ndarray) -> float:
    """√Σ g², of what may be too large to be squared."""
    top = float(np.abs(g).max(initial=0.0))
    return top * float(np.linalg.norm(g.astype(np.float64).ravel() / top)) if 0 < top < math.inf else top


def clip_grad_value(parameters: Iterable[Tensor], limit: float) -> None:
    """Limit each element of each gradient to −limit … limit, which may turn its direction.

    >>> w = Tensor([0.0, 0.0], requires_grad=True)
    >>> w.grad = np.array([0.5, -4.0])
    >>> clip_grad_value([w], 1.0)
    >>> w.grad
    array([ 0.5, -1. ])
    """
    _rate("clip_grad_value", 0.0, limit=limit)
    for p in _with_grads(parameters):
        p.grad = np.clip(p.grad, -float(limit), float(limit))


def _with_grads(parameters: Iterable[Tensor]) -> Sequence[Any]:
    given = [parameters] if isinstance(parameters, Tensor) else parameters
    return [p for p in dict.fromkeys(given) if p.grad is not None]
