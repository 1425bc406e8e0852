# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Seeing the graph
#
# **The problem.** You compute `tanh(w * x + b) * x`, and x has a gradient of −1.90. Where does it come from? The chain
# rule says "along all paths", but code shows no paths; it shows lines, one after another. And in a model of hundreds of
# ops, a gradient that vanishes does so *somewhere*. Where?
#
# A computation graph answers both. Here you draw one, read gradients off it, fold what is too large, step through the
# backward pass, and find the place where attention without the division by √d_k loses its gradient.
#
# You need: the chain rule, and, for the second half, attention. The pictures are drawn by a `dot` program: Graphviz's
# own, or `pip install graphviz-pure`. Where there is none, you see the page of section 6 in place of each.

# %%
import numpy as np

from tinygrad_attn import Tensor, attention, examples, gradcheck, graph, multi_head_attention
from tinygrad_attn.learn import exercises, quiz

rng = np.random.default_rng(0)

# %% [markdown]
# ## 1. Read a graph
#
# Each op is a rounded box. An edge goes from each of its inputs to it, so the computation runs from top to bottom, to
# the output, which has a thick line. Leaves, which you made and which need a gradient, are rectangles; so are
# constants, which are grey. `names=locals()` gives your own names to what you can see here, and `values=True` writes
# out what is small.

# %%
x = Tensor(2.0, requires_grad=True)
w = Tensor(-1.5, requires_grad=True)
b = Tensor(3.5, requires_grad=True)
y = (w * x + b).tanh() * x

graph.draw(y, names=locals(), values=True)

# %% [markdown]
# The same as text, from the output down. x stands there twice, because it is used twice; in the picture these are its
# two edges.

# %%
print(graph.draw(y, names=locals(), values=True))

# %% [markdown]
# ## 2. Gradients take the same edges, backwards
#
# `grads=True` walks back from y and shows what each value gets: dL/d value, where L, the number that is differentiated,
# is y itself. (If the output has several elements, L is their sum.) Edges are the wider, and boxes the darker, the
# larger the gradient, on a log scale; colour means that now, and no longer leaf or op. Where a number has several uses,
# its edges say what comes back along each.
#
# The walk takes the newest op first, and so comes to a value only when all of its uses have sent their share. It does
# so by itself: no `.grad` is filled and nothing is freed, so you can draw before `backward()`, and as often as you
# like.

# %%
drawn = graph.draw(y, names=locals(), values=True, grads=True)
drawn

# %%
assert x.grad is None                                   # nobody's .grad was touched
y.backward()
print(f"x: {x.grad:.4f}   w: {w.grad:.4f}   b: {b.grad:.4f}")
assert gradcheck(lambda x, w, b: (w * x + b).tanh() * x, (2.0, -1.5, 3.5))   # differences agree

# %% [markdown]
# Go back along the edges by hand. The last op is a product, tanh · x. Its rule for x is g · tanh = 0.462, and that is
# one share. The other takes the long way: from the last product (g · x), through tanh (g · (1 − tanh²)) and the sum
# (g), and through the product w · x (g · w). In numbers, 1 · 2 · 0.7864 · 1 · (−1.5) = −2.359. A small change of x
# changes y along both ways at once, so the shares add up: that is where −1.90 comes from.
#
# Every picture has a model behind it, plain data that you can ask. (In memory, each op keeps its inputs, and no value
# knows its uses: a value is made before them.) Here are the shares that came to x:

# %%
(place,) = [v.id for v in drawn.trace.vertices if v.name == "x"]
shares = [float(edge.grad) for edge in drawn.trace.edges if edge.source == place]
print(" + ".join(f"{share:.4f}" for share in shares), "=", f"{sum(shares):.4f}")
assert abs(sum(shares) - x.grad) < 1e-12
assert abs(shares[1] - np.tanh(0.5)) < 1e-12            # the short way; edges are in the order of the ops
assert abs(shares[0] - 2 * (1 - np.tanh(0.5) ** 2) * -1.5) < 1e-12
assert round(1 - np.tanh(0.5) ** 2, 4) == 0.7864

# %% [markdown]
# Along all paths does not mean one path after another. Double a number twenty times: each sum doubles the number of
# paths. Every path carries a share of 1, so the gradient is the number of paths; but the walk takes each edge once.

# %%
doubled = start = Tensor(1.0, requires_grad=True, name="start")
for _ in range(20):
    doubled = doubled + doubled
trace = graph.draw(doubled, grads=True).trace
print(f"{len(trace.edges)} edges, {int(trace.vertices[0].grad):,} paths")
assert (len(trace.edges), trace.vertices[0].grad) == (40, 2 ** 20)

# %% [markdown]
# ## 3. Boxes
#
# Attention of three words, with weights for queries, keys and values. `attention` draws boxes around its steps: scale,
# scores, and weigh, with the op softmax between them. (The scale is applied to the query, before the scores are
# computed: the product is the same, and the query is smaller.) The output has twelve elements, so these are the
# gradients of their sum.

# %%
words = examples.three_words()
graph.draw(words, grads=True)

# %% [markdown]
# Boxes of your own are made by `graph.scope`, and what is in one can be folded. `collapse=0` folds the outermost
# boxes, `collapse=1` leaves those open and folds what is in them, and so on; `collapse="attention"` folds by name.
# What is folded has a double line. Eight heads, written as a loop, are eight boxes:

# %%
L, E, H = 10, 64, 8                                     # positions, width, heads
X = Tensor(rng.normal(size=(L, E)), name="X")
W_q, W_k, W_v = (Tensor(rng.normal(size=(H, E, E // H)) / 8, requires_grad=True, name=n) for n in ("W_q", "W_k", "W_v"))
W_o = Tensor(rng.normal(size=(E, E)) / 8, requires_grad=True, name="W_o")


def one_by_one():
    outputs = []
    for h in range(H):
        with graph.scope(f"head {h}"):
            outputs.append(attention(X @ W_q[h], X @ W_k[h], X @ W_v[h])[0])
    return np.concatenate(outputs, axis=-1) @ W_o


looped = one_by_one()
print(repr(graph.draw(looped)))
graph.draw(looped, collapse=0, shapes=False)

# %% [markdown]
# `multi_head_attention` computes the same, all heads at once, by one more axis. NumPy is called less often for it, as
# the graph tells at a glance: 11 ops instead of 90. Folded, and unfolded:

# %%
together = multi_head_attention(X, W_q, W_k, W_v, W_o, H)
np.testing.assert_allclose(together.numpy(), looped.numpy(), atol=1e-12)
ops = [sum(v.kind == "op" for v in graph.trace(out).vertices) for out in (looped, together)]
print(f"ops: {ops[0]} in the loop, {ops[1]} together")
assert ops == [90, 11]
graph.draw(together, collapse=1)

# %%
graph.draw(together)

# %% [markdown]
# ## 4. Where does the gradient die?
#
# At d_k = 1024, unscaled scores have a standard deviation of 32, and the softmax of such scores is nearly one-hot. The
# gradient comes as far as the softmax, and hardly any further. `graph.compare` draws two graphs with one scale for the
# gradients. On the left scores are divided by √d_k:

# %%
both = examples.vanishing()
both

# %% [markdown]
# What you see is one query and 64 keys: of 101 draws the one in the middle, by the norm of the gradient at the unscaled
# scores. Other draws differ, and by a lot: now and then the two largest scores nearly tie, and then the gradient does
# come through. So the picture shows what is typical, and not what is average; tutorial 05 has both.
#
# At the scores 0.12 has come on the left, and 0.000046 on the right. Then both are multiplied by the keys, and grow, by
# a factor of about 33. On the left the 1/32 that scaled the query also scales its gradient; on the right nothing does.
# So at the query the difference is a factor of 80, and no longer of 2,600. What died, died at the softmax.

# %%
norms = {}
for v in reversed(both.trace.vertices):                 # the walk back
    if v.name == "query" or v.label == "multiply" or (v.label == "matmul" and v.shape == (1, 64)):
        place = v.name or {"matmul": "scores", "multiply": "multiply, behind the keys"}[v.label]
        norms.setdefault(place, []).append(float(np.linalg.norm(v.grad)))
for place, (unscaled, scaled) in norms.items():
    print(f"{place}: {scaled:.2g} and {unscaled:.2g}, a factor of {scaled / unscaled:.0f}")
assert round(norms["scores"][1] / norms["scores"][0], -2) == 2600
assert round(norms["query"][1] / norms["query"][0], -1) == 80
for at_scores, behind in zip(norms["scores"], norms["multiply, behind the keys"]):
    assert 32 < behind / at_scores < 33.5

# %% [markdown]
# Nor do you have to look for the place: ask for the edge along which the gradient shrinks most.

# %%
def most_lost(drawn, side):
    """The op of one side that sends back the least, of all that came to it."""
    ops = {v.id: v for v in drawn.trace.vertices if v.id.startswith(side)}

    def kept(edge):
        return np.linalg.norm(edge.grad) / np.linalg.norm(ops[edge.target].grad)
    worst = min((e for e in drawn.trace.edges if e.target in ops and e.grad is not None), key=kept)
    return ops[worst.target].label, kept(worst)


for side, name in (("a", "scaled"), ("b", "unscaled")):     # with these letters compare begins the ids
    op, share = most_lost(both, side)
    print(f"{name}: {op} sends on {share:.1e} of what comes to it")
assert most_lost(both, "b")[0] == "softmax"
assert most_lost(both, "b")[1] < 1e-3 * most_lost(both, "a")[1]

# %% [markdown]
# ## 5. Large graphs
#
# Nothing here recurses, so graphs of any size are traced. But nobody reads 100,000 boxes: what has more than
# `max_nodes` (500) is folded, from the innermost boxes out, and if that is not enough, the oldest part is left out. The
# picture says so.

# %%
value = start = Tensor(1.0, requires_grad=True, name="start")
for _ in range(20_000):
    value = (value * 1.5).tanh()
print(graph.draw(value).note)
assert len(graph.draw(value).shown.vertices) == 500
graph.draw(value, max_nodes=6, values=True)

# %% [markdown]
# ## 6. The backward pass as a film
#
# `save` writes DOT text, a picture, or, if the name ends in .html, one page that needs no network: it shows the graph
# and steps back through it, op by op, with the gradient that arrives, the rule, what is sent to each input, and how
# shares add up. A notebook shows the same page for `.page()`. Step with the buttons or the arrow keys; a click on the
# name of a box folds it.

# %%
drawn.page()

# %%
film = graph.draw(words).page()
print(f"three words: {len(film.encode()) // 1000} kB")
film

# %% [markdown]
# The examples are on the command line too, and so are functions of yours:
#
# ```bash
# python3 -m tinygrad_attn graph attention --out out/attention.html --open
# python3 -m tinygrad_attn graph my_model.py:loss --grads --out out/loss.svg
# ```
#
# ## Exercises
#
# - **10-three-edges**: say what three edges carry, before you draw them. It is the chain rule, read off a picture.
# - **10-lost**: find the op that passes on least in a row of ten. In a deep network, losses like these multiply.
# - **10-shares**: give attention one input in three places. Which shares survive large scores?
# - **10-largest**: ask the trace of a graph a question, as section 4 did.
# - **10-paths**: count the paths that the chain rule sums over, in graphs where nobody could walk them all.
#
# `check("10-three-edges", (…, …, …, …))` grades a prediction, `check("10-largest", largest)` a function.

# %%
exercises("10")

# %% [markdown]
# ## Quiz

# %%
quiz("10")

# %% [markdown]
# ## Read on
#
# `tinygrad_attn/graph/trace.py` makes the data of a recorded graph, and `engine.py` has the walk that it listens to.
# Tutorial 05 measures what section 4 shows.
