"""What is measured: the rows, the inputs that all contestants of a row are given, and what is asked of ours.

Letters in shapes: B batch, H heads, L length, E width, D = E / H head width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from tinygrad_attn.examples import W_K, W_Q, W_V, X

Run = Callable[[], tuple[Any, ...]]         # one forward and backward: the output, then the gradients


class Contestant(NamedTuple):
    """Who computes: a module of this package, which of its variants, and the package that must be installed."""

    module: str
    variant: str = ""
    needs: str = "numpy"


CONTESTANTS = {
    "floor": Contestant("floor"),
    "floor, split": Contestant("floor", "split"),
    "NumPy by hand": Contestant("by_hand"),
    "tinygrad_attn": Contestant("ours"),
    "tinygrad_attn, composed": Contestant("ours", "composed"),
    "pytorch": Contestant("pytorch", "", "torch"),
    "pytorch, SDPA": Contestant("pytorch", "sdpa", "torch"),
    "autograd": Contestant("peers", "autograd", "autograd"),
    "mygrad": Contestant("peers", "mygrad", "mygrad"),
    "jax": Contestant("peers", "jax", "jax"),
}
FLOORS, TORCHES = ("floor", "floor, split"), ("pytorch", "pytorch, SDPA")


@dataclass(frozen=True)
class Row:
    """One line of work. `quick` has the sizes of a smoke run."""

    name: str
    work: str                               # what it is called in the table of each contestant's module
    sizes: dict[str, Any]
    quick: dict[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    threads: tuple[int, ...] = (1,)
    unit: str = "ms"
    only: tuple[str, ...] = ()              # the contestants, if not all that can
    group: str = ""                         # rows of a group are run when they are asked for
    memory: bool = False                    # is the extra peak memory of interest?
    note: str = ""

    def contestants(self, threads: int = 1) -> list[str]:
        """The names of those that have this work, installed or not. At one thread nothing is split."""
        return [name for name in self.only or CONTESTANTS
                if maker(self, name) and not (threads == 1 and name == "floor, split")]


def maker(row: Row, name: str) -> Callable[[SimpleNamespace], Run] | None:
    """What makes a contestant's run from the inputs of a row."""
    module, variant, _ = CONTESTANTS[name]
    return import_module(f"benchmarks.{module}").MAKE.get((row.work, variant))


def installed(name: str) -> bool:
    return find_spec(CONTESTANTS[name].needs) is not None


SMALL: dict[str, Any] = {"dtype": "float64", "unit": "µs"}
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
IN_PLOT = ("tinygrad_attn", "tinygrad_attn, composed", "pytorch", "pytorch, SDPA")
COMPOSED = ("tinygrad_attn, composed", "pytorch", "autograd", "mygrad", "jax")
COMPOSED_TO = 4096                          # beyond, the weights of 8 heads and their gradients do not fit in memory


def op_row(name: str, shape: tuple[int, ...], step: str, **more: Any) -> Row:
    return Row(name, "recorded op", {"shape": shape, "step": step, "chain": 100},
               {"shape": shape, "step": step, "chain": 5}, **SMALL, **more)


def attention_row(name: str, L: int, **more: Any) -> Row:
    return Row(name, "attention", {"H": 8, "L": L, "D": 64}, {"H": 2, "L": max(8, L // 16), "D": 8}, memory=True,
               **more)


GPT = {"layers": 4, "E": 128, "H": 4, "L": 64, "B": 16, "V": 65}
ROWS = [
    op_row("recorded op (scalar)", (), "times x"),
    op_row("recorded op (4 elements)", (4,), "times x"),
    *(op_row(f"ops: {step}", shape, step, group="ops", only=("tinygrad_attn", "pytorch")) for step, shape in
      (("times a number", (4,)), ("tanh", (4,)), ("relu", (4,)), ("matmul", (4, 4)), ("softmax", (4,)))),
    Row("example B", "example B", {}, **SMALL),
    Row("layer 8 x 128 x 256", "layer", {"B": 8, "L": 128, "E": 256, "H": 8},
        {"B": 2, "L": 6, "E": 8, "H": 2}, threads=(1, 2)),
    Row("layer 8 x 128 x 256 float64", "layer", {"B": 8, "L": 128, "E": 256, "H": 8},
        {"B": 2, "L": 6, "E": 8, "H": 2}, dtype="float64", threads=(1, 2)),
    Row("layer 1 x 1024 x 512", "layer", {"B": 1, "L": 1024, "E": 512, "H": 8},
        {"B": 1, "L": 12, "E": 16, "H": 2}, threads=(1, 2)),
    attention_row("attention 8 x 4096 x 64", 4096, threads=(1, 2), note="the floor has 2 products forward and 5 "
                  "backward: without memory for all scores they are computed twice"),
    attention_row("attention 8 x 16384 x 64", 16384, only=("tinygrad_attn", "pytorch, SDPA")),
    Row("GPT step", "GPT step", GPT, {"layers": 2, "E": 8, "H": 2, "L": 6, "B": 2, "V": 7}, threads=(1, 2),
        note="4 layers, E=128, H=4, L=64, B=16, V=65; forward, backward, AdamW; in \"pytorch, SDPA\" AdamW is fused"),
    Row("import", "import", {}, dtype="", note="of tinygrad_attn beyond NumPy, of NumPy and of "
        "others beyond bare Python"),
    *(attention_row(f"lengths: attention 8 x {L} x 64", L, group="lengths",
                    only=tuple(name for name in IN_PLOT if L <= COMPOSED_TO or name not in COMPOSED))
      for L in LENGTHS if L not in (4096, 16384)),
]


class Target(NamedTuple):
    """Ours is to take at most `limit` times as long as `versus`, or, where that is a unit, `limit` of it."""

    row: str
    threads: int
    limit: float
    versus: str                             # "floor", "pytorch", "pytorch, SDPA", "the best pytorch"; "ms", "MiB"


TARGETS = [
    Target("recorded op (scalar)", 1, 0.35, "pytorch"),
    Target("recorded op (4 elements)", 1, 0.50, "pytorch"),
    Target("example B", 1, 0.50, "the best pytorch"),
    Target("layer 8 x 128 x 256", 1, 1.25, "floor"),
    Target("layer 8 x 128 x 256", 1, 0.90, "the best pytorch"),
    Target("layer 8 x 128 x 256", 2, 1.35, "floor"),
    Target("layer 8 x 128 x 256", 2, 0.90, "the best pytorch"),
    Target("layer 8 x 128 x 256 float64", 1, 0.75, "the best pytorch"),
    Target("layer 1 x 1024 x 512", 1, 1.15, "floor"),
    Target("layer 1 x 1024 x 512", 1, 0.92, "pytorch, SDPA"),
    Target("attention 8 x 4096 x 64", 1, 1.15, "floor"),
    Target("attention 8 x 4096 x 64", 1, 0.97, "pytorch, SDPA"),
    Target("attention 8 x 4096 x 64", 1, 32, "MiB"),
    Target("attention 8 x 16384 x 64", 1, 96, "MiB"),
    Target("GPT step", 1, 1.45, "floor"),
    Target("GPT step", 1, 0.95, "the best pytorch"),
    Target("GPT step", 2, 1.00, "the best pytorch"),
    Target("import", 1, 25, "ms"),
]


# One step of a chain, y -> y, with an x that each step uses: the same expression for every framework.
STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "times x": lambda y, x: y * x,
    "times a number": lambda y, x: y * 1.001,
    "tanh": lambda y, x: y.tanh(),
    "relu": lambda y, x: y.relu(),
    "matmul": lambda y, x: y @ x,
    "softmax": lambda y, x: y.softmax(-1),
}
START = (1.001, 1.001, 0.25)                # by the number of axes: powers of this neither grow nor vanish
BETAS, EPS, DECAY = (0.9, 0.999), 1e-8, 0.01    # of AdamW, the usual ones
RATE = 3e-4


def chain(x: Any, step: str, length: int) -> Any:
    y = x
    for _ in range(length):
        y = STEPS[step](y, x)
    return y


def inputs(row: Row, threads: int = 1, quick: bool = False) -> SimpleNamespace:
    """The sizes of a row and its arrays, always the same."""
    p = SimpleNamespace(**(row.quick or row.sizes) if quick else row.sizes, threads=threads, dtype=row.dtype)
    rng = np.random.default_rng(0)

    def normal(*shape: int, size: float = 1.0) -> np.ndarray:
        return (size * rng.standard_normal(shape)).astype(row.dtype)

    if row.work == "recorded op":
        p.x, p.g = np.full(p.shape, START[len(p.shape)]), np.ones(p.shape)
    elif row.work == "example B":
        p.x, p.weights = np.array(X), [np.array(w) for w in (W_Q, W_K, W_V)]
    elif row.work == "layer":
        p.parameters = layer_parameters(normal, p.E)
        p.x, p.g = normal(p.B, p.L, p.E), normal(p.B, p.L, p.E)
    elif row.work == "attention":
        p.q, p.k, p.v, p.g = (normal(p.H, p.L, p.D) for _ in range(4))
    elif row.work == "GPT step":
        p.parameters = gpt_parameters(normal, p)
        p.ids, p.targets = rng.integers(p.V, size=(2, p.B, p.L))
    return p


def layer_parameters(normal: Callable[..., np.ndarray], E: int) -> dict[str, np.ndarray]:
    """Those of multi-head attention, with PyTorch's names and layout."""
    return {"in_proj_weight": normal(3 * E, E, size=E ** -0.5), "in_proj_bias": normal(3 * E, size=0.02),
            "out_proj.weight": normal(E, E, size=E ** -0.5), "out_proj.bias": normal(E, size=0.02)}


def gpt_parameters(normal: Callable[..., np.ndarray], p: SimpleNamespace) -> dict[str, np.ndarray]:
    """Those of `nn.GPT`, in its order."""
    E, one = p.E, np.ones(p.E, p.dtype)
    parameters = {"tokens.weight": normal(p.V, E, size=0.1), "positions.weight": normal(p.L, E, size=0.1)}
    for i in range(p.layers):
        parameters |= {f"blocks.layers.{i}.{name}": w for name, w in {
            **{f"self_attn.{name}": w for name, w in layer_parameters(normal, E).items()},
            "linear1.weight": normal(4 * E, E, size=E ** -0.5), "linear1.bias": normal(4 * E, size=0.02),
            "linear2.weight": normal(E, 4 * E, size=(4 * E) ** -0.5), "linear2.bias": normal(E, size=0.02),
            "norm1.weight": one + normal(E, size=0.1), "norm1.bias": normal(E, size=0.1),
            "norm2.weight": one + normal(E, size=0.1), "norm2.bias": normal(E, size=0.1)}.items()}
    return parameters | {"blocks.norm.weight": one + normal(E, size=0.1), "blocks.norm.bias": normal(E, size=0.1)}
