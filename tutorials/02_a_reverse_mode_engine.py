# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # A reverse-mode engine in 60 lines, then ours
#
# **The problem.** In tutorial 01 you found a gradient by trying: two evaluations for each number. A small model has a
# million numbers. Two million evaluations for one step of learning are too many. Yet all these derivatives are of *one*
# answer, and share most of their work.
#
# You will follow the chain rule back by hand, write an engine that does it for any expression, see what goes wrong in
# another order, and find the same parts in this package.
#
# You need: the chain rule, (tanh h)′ = 1 − tanh² h, and tutorial 01's finite differences.

# %%
import math

import numpy as np

from tinygrad_attn import Tensor, gradcheck, graph
from tinygrad_attn.learn import exercises, quiz

# %% [markdown]
# ## 1. From the output back
#
# Take y = h · tanh(h) + x with h = w · x. Computed one op (operation) at a time, at x = 2 and w = ½:

# %%
x, w = 2.0, 0.5
h = w * x
t = math.tanh(h)
p = h * t
y = p + x
print(f"h = {h}, t = {t:.4f}, p = {p:.4f}, y = {y:.4f}")

# %% [markdown]
# Now ask of each value: if it grew a little, how much would y grow? Begin at y itself, where that is 1, and go back.
# Each use sends back its own answer, times its *slope*, the derivative of that one op. If a value has several uses,
# these shares are added up:
#
# $$\frac{\partial y}{\partial x} = \sum_{\text{uses } u \text{ of } x} \frac{\partial y}{\partial u} \cdot
# \frac{\partial u}{\partial x}.$$
#
# Write `dt` for ∂y/∂t, and so on:

# %%
dy = 1.0
dp = dy * 1.0                                           # y = p + x
dt = dp * h                                             # p = h · t
dh = dp * t + dt * (1 - t * t)                          # two uses: in p, in t
dw = dh * x                                             # h = w · x
dx = dh * w + dy * 1.0                                  # two uses: in h, in y
print(f"dh = {dp * t:.4f} + {dt * (1 - t * t):.4f} = {dh:.4f}, dw = {dw:.4f}, dx = {dx:.4f}")

# %% [markdown]
# One walk back gave the derivatives with respect to both inputs, which share `dh`. With a million inputs it is still
# one walk. This is *reverse mode*. Finite differences agree:

# %%
def expression(x, w):
    return w * x * math.tanh(w * x) + x


step = 1e-5
assert abs((expression(x + step, w) - expression(x - step, w)) / (2 * step) - dx) < 1e-8
assert abs((expression(x, w + step) - expression(x, w - step)) / (2 * step) - dw) < 1e-8

# %% [markdown]
# ## 2. Values that remember
#
# To walk back, a program must know what was computed from what. So let a number remember its inputs, and the slope with
# respect to each. Python calls `__add__` for `+`, and `__mul__` for `*`.

# %%
class Value:
    def __init__(self, data, inputs=(), slopes=()):
        self.data, self.inputs, self.slopes = data, inputs, slopes
        self.grad = 0.0

    def __add__(self, other):
        return Value(self.data + other.data, (self, other), (1.0, 1.0))

    def __mul__(self, other):
        return Value(self.data * other.data, (self, other), (other.data, self.data))

    def tanh(self):
        t = math.tanh(self.data)
        return Value(t, (self,), (1 - t * t,))

    def backward(self):
        found = walk(self, topological_order(self))
        for value, gradient in found.items():
            if not value.inputs:                        # a leaf
                value.grad += gradient

# %% [markdown]
# The slope of a product with respect to `self` is `other.data`, and the other way round. What has no inputs is a
# *leaf*: you made it, and you want its gradient. `backward` adds it to the leaf's `.grad`.
#
# Two functions are missing. The first goes through the values in a given order, and sends from each its share to every
# input: `+=` and not `=`, since that input may have got another share before.

# %%
def walk(y, order):
    found = dict.fromkeys(order, 0.0)
    found[y] = 1.0
    for value in order:
        for x, slope in zip(value.inputs, value.slopes):
            found[x] += found[value] * slope
    return found

# %% [markdown]
# ## 3. In which order?
#
# The nearest to y first: y, then its inputs, then theirs? Try it.

# %%
def nearest_first(y):
    order = [y]
    for value in order:                                 # it grows meanwhile
        order += [x for x in value.inputs if x not in order]
    return order


x, w = Value(2.0), Value(0.5)
h = w * x
y = h * h.tanh() + x
found = walk(y, nearest_first(y))
print(f"nearest first: dx = {found[x]:.4f}, dw = {found[w]:.4f}; by hand {dx:.4f} and {dw:.4f}")
assert found[w] != dw

# %% [markdown]
# It is wrong, and raises no error. h has two uses, the product and tanh. The walk came from the product to h before it
# came to tanh. So it sent on only the first share of h, 0.7616; the second came too late, and went no further.
#
# The rule: **a value may be visited when all of its uses have been.** An order that keeps it is *topological*. One way
# to get it: write each value down *after* all that it was computed from, and at the end read the list backwards.

# %%
def topological_order(y):
    done, seen = [], set()

    def visit(value):
        if value not in seen:
            seen.add(value)
            for x in value.inputs:
                visit(x)
            done.append(value)

    visit(y)
    return done[::-1]


y.backward()
print(f"topological: dx = {x.grad:.4f}, dw = {w.grad:.4f}")
assert abs(x.grad - dx) + abs(w.grad - dw) < 1e-12

# %% [markdown]
# That is the whole engine: class, walk, order. (Sections 2 and 3 have fewer than 60 lines of code.) `seen` is needed:
# without it, a value of two uses would be visited twice, and its inputs, if used twice by it, four times.
#
# There is one weakness. `visit` calls itself, and Python allows about a thousand calls inside one another:

# %%
value = start = Value(0.5)
for _ in range(5000):
    value = value.tanh()
try:
    value.backward()
except RecursionError as error:
    print("RecursionError:", error)
assert start.grad == 0

# %% [markdown]
# ## 4. The same with ours
#
# `Tensor` is our `Value`. `requires_grad=True` makes a leaf that gets a gradient.

# %%
x, w = Tensor(2.0, requires_grad=True), Tensor(0.5, requires_grad=True)
h = w * x
y = h * h.tanh() + x
drawn = graph.draw(y, names={"x": x, "w": w, "h": h, "y": y}, values=True, grads=True)
y.backward()
print(f"dx = {x.grad:.4f}, dw = {w.grad:.4f}")
assert abs(x.grad - dx) + abs(w.grad - dw) < 1e-12
drawn

# %% [markdown]
# The picture runs from the leaves w and x at the top down to y. Gradients take the same edges upwards. Two edges leave
# h, and 0.7616 and 0.42 come back along them, the two shares of section 1. (A program called `dot` draws this. Where
# there is none, `print(drawn)` shows the same as text.)
#
# Call `y.backward()` again, and an error says that the graph is freed, to give memory back. With
# `y.backward(retain_graph=True)` it is kept, and each walk adds the same gradients to the leaves once more. Only leaves
# add up. A gradient on the way, such as dh, is forgotten with its walk, as `found` is. Were it kept in h, the next walk
# would send the old one on together with the new.
#
# ## 5. Arrays
#
# With arrays, a slope is no longer a number: if x and out have n elements each, it is an n × n table, for x · y nearly
# all zeros. Nobody stores that. The walk only needs a function that, given g = ∂L/∂out, returns ∂L/∂x, where L is the
# one number at the end. The table is called the Jacobian, and this is g times it, without the table: the op's
# *vector-Jacobian product*, or **vjp**. Each op has one for each input:
#
# $$\begin{aligned}
# \text{out} &= x + y: & g &\mapsto g, & g &\mapsto g \\
# \text{out} &= x \cdot y: & g &\mapsto g \cdot y, & g &\mapsto g \cdot x \\
# \text{out} &= \tanh x: & g &\mapsto g \cdot (1 - \text{out}^2)
# \end{aligned}$$
#
# Each is the derivative that you know, times g, element by element. The last uses `out`, which is there already.
#
# **Broadcasting** needs care. In `x + b`, with x of shape (3, 2) and b of shape (2,), NumPy uses each element of b in
# three rows. Three uses, three shares: the gradient of b is g, of shape (3, 2), summed over the rows. If b has shape
# (3, 1), its axis of length 1 is repeated. The sum over that axis keeps it:

# %%
rng = np.random.default_rng(0)
g = rng.normal(size=(3, 2))                             # ∂L/∂out
for shape, by_hand in (((2,), g.sum(axis=0)), ((3, 1), g.sum(axis=1, keepdims=True)), ((), g.sum())):
    b = Tensor(np.zeros(shape), requires_grad=True)
    (Tensor(np.ones((3, 2))) + b).backward(g)           # (3, 2); from g instead of 1
    print(f"{shape!s:6} gradient of shape {b.grad.shape}")
    assert b.grad.shape == shape
    assert np.allclose(b.grad, by_hand)

# %% [markdown]
# A gradient has the shape of what it belongs to. The way back to it is *unbroadcasting*. Broadcasting aligns shapes at
# their ends, puts missing axes in front, and repeats axes of length 1; the way back sums over both kinds.
#
# Are these rules right when used together? `gradcheck` asks the definition, element by element.

# %%
x, w, b = (rng.normal(size=shape) for shape in ((3, 2), (3, 1), (2,)))
print(gradcheck(lambda x, w, b: x * w * (x * w).tanh() + b, (x, w, b)))

# %% [markdown]
# ## 6. How ours differs
#
# | | sections 2 and 3 | the package |
# |---|---|---|
# | **order** | a search, by recursion | a counter, the *tick* |
# | **data** | numbers | arrays |
# | **derivatives** | slopes, stored | vjps, a list of functions |
# | **after the walk** | the graph stays | the graph is freed |
#
# The tick: a value can only be made of values that exist already. So count the ops as they run. Every use of a value
# has a higher number than the value itself, and the highest number first is a topological order. The package collects
# what y was computed from, and sorts it. Nothing calls itself, so a long chain is no trouble:

# %%
value = start = Tensor(0.5, requires_grad=True)
for _ in range(5000):
    value = value.tanh()
ticks = (value.node.tick, value.node.inputs[0].node.tick)
value.backward()
print(f"ticks of the last two ops {ticks}; after 5000 steps the gradient is {start.grad:.2e}")
assert ticks[0] > ticks[1]

# %% [markdown]
# ## Exercises
#
# - **02-by-hand**: predict a gradient, with values that are used several times.
# - **02-second-walk**: predict what two walks leave behind.
# - **02-divide-vjp**: write the two vjps of x / y.
# - **02-unbroadcast**: write the way back from broadcasting, for any shapes.
# - **02-order**: write a topological order that needs no recursion.
# - **02-engine-trial**: write a test that finds eight broken engines.
#
# Tutorial 01 says how to answer: `check("02-by-hand", answer)`, or `learn start` and `learn check` in a terminal.

# %%
exercises("02")

# %% [markdown]
# ## Quiz

# %%
quiz("02")

# %% [markdown]
# ## Read on
#
# `tinygrad_attn/engine.py` is the engine: `Node` is what an op remembers, `topological_order` sorts by ticks,
# `backpropagate` is the walk, and `unbroadcast` is what you write in the exercise. `tinygrad_attn/ops.py` has the vjps;
# its first page you can read now. Tutorial 10 steps through such walks.
#
# The paper: Baydin et al. (2018), "Automatic differentiation in machine learning: a survey".
