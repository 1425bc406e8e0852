# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # An attention bug zoo
#
# **The problem.** You wrote attention. The shapes are right, and the loss falls. Is it attention? A layer that divides
# by the wrong root, or mixes up its heads, or reads its mask the other way round, does the same, without an error.
#
# Here are twelve faults of the kind that people write, planted in one small layer. You will see which checks catch
# them, and then write checks. You need: tutorials 06 to 12.

# %%
import numpy as np

from tinygrad_attn import Tensor, causal_mask, gradcheck, nn, softmax
from tinygrad_attn.learn import exercises, quiz
from tinygrad_attn.plots import heatmap

# %% [markdown]
# ## 1. The specimens
#
# | name | what is wrong |
# |---|---|
# | scale | divides by √E, of the model's width, not by √D, of a head's |
# | axis | takes the softmax over the queries |
# | reshape | reshapes the keys to (D, S) instead of transposing them |
# | flipped | reads True in a mask as "hidden" |
# | merge | joins the heads without moving their axis back |
# | positions | adds the positions twice |
# | sequence | makes keys from the queries' sequence, not from the context |
# | −1e9 | adds −1e9 to masked scores |
# | evaluation | drops weights out of training, too |
# | shrunk | does not divide by 1 − p the weights that it keeps |
# | last-use | gives x the gradient of its last use: `=` for `+=` |
# | mean | gives the bias the mean of its uses' gradients, not the sum |
#
# Each is switched on by its name; without one the layer is right. `c` holds all that it needs (`shift` is for section
# 4); without a context, it is self-attention. Given a generator, it trains with dropout: each weight becomes 0 with
# probability p = 0.3, and what is kept is divided by 1 − p, so that the average stays. Without one, nothing is dropped.

# %%
FAULTS = "scale axis reshape flipped merge positions sequence −1e9 evaluation shrunk last-use mean".split()


def layer(c, fault="", generator=None):
    """x (B, L, E), context (B, S, E), mask (B, 1, L, S) -> (B, L, E)"""
    (B, L, E), H, mask = c["x"].shape, c["heads"], c["mask"]
    D, times = E // H, 2 if fault == "positions" else 1
    x, context = (a + times * c["places"][:a.shape[1]] for a in (c["x"], c.get("context", c["x"])))
    sources = x, x if fault == "sequence" else context, context
    q, k, v = ((a @ w).reshape(B, -1, H, D).swapaxes(1, 2) for a, w in zip(sources, c["qkv"]))      # (B, H, …, D)
    turned = k.reshape(B, H, D, -1) if fault == "reshape" else k.swapaxes(-1, -2)
    scores = q @ turned / (E if fault == "scale" else D) ** 0.5 + c["shift"]                        # (B, H, L, S)
    keep = ~mask if fault == "flipped" else mask
    if fault == "−1e9":
        scores, keep = scores + np.where(mask, 0, -1e9).astype(scores.dtype), None
    weights = softmax(scores, axis=-2 if fault == "axis" else -1, where=keep)
    if generator or fault == "evaluation":
        kept = (generator or np.random.default_rng()).random(weights.shape) >= 0.3
        weights = weights * kept / (1 if fault == "shrunk" else 0.7)
    output = weights @ v if fault == "merge" else (weights @ v).swapaxes(1, 2)
    return output.reshape(B, L, E) @ c["o"] + c["bias"]

# %% [markdown]
# The last two faults are in gradients. In self-attention x has two uses, as x and as context, and the bias has one at
# each position. Here we ask the engine for each share alone, and add by hand.

# %%
def loss(c, fault=""):
    return (layer(c, fault) ** 2).sum()


def gradients(c, fault=""):
    x, context, bias = (Tensor(a, requires_grad=True) for a in (c["x"], c["x"], c["bias"] + 0 * c["x"]))
    loss(c | {"x": x, "context": context, "bias": bias}, fault).backward()
    dx = context.grad if fault == "last-use" else x.grad + context.grad                             # (B, L, E)
    return dx, bias.grad.mean(axis=(0, 1)) if fault == "mean" else bias.grad.sum(axis=(0, 1))

# %% [markdown]
# ## 2. A check that sees nothing
#
# A check tells whether a fault passes. An error counts as caught. `draw` makes inputs whose sizes all differ, or, with
# `alone`, self-attention.

# %%
def draw(B=2, L=4, S=5, H=3, D=6, alone=False):
    rng, E, S = np.random.default_rng(0), H * D, L if alone else S
    x, context, bias = rng.normal(size=(B, L, E)), rng.normal(size=(B, S, E)), rng.normal(size=E)
    *qkv, o = rng.normal(size=(4, E, E)) / E ** 0.5
    mask = rng.random((B, 1, L, S)) < 0.6
    mask[..., 0] = True                                 # no query without keys
    c = {"x": x, "mask": mask, "places": nn.sinusoids(8, E), "shift": 0.0, "qkv": np.array(qkv), "o": o, "bias": bias}
    return c | ({"heads": H} if alone else {"heads": H, "context": context})


@np.errstate(all="ignore")
def passes(check, fault):
    try:
        return check(fault)
    except ValueError:
        return False


TABLE = {}


def told(*checks):
    for check in checks:
        name = check.__name__.replace("_", " ")
        TABLE[name] = [not passes(check, fault) for fault in FAULTS]
        print(f"{name}: {', '.join(fault for fault, caught in zip(FAULTS, TABLE[name]) if caught) or 'nothing'}")
        assert passes(check, "")                        # the right layer


def falling_loss(fault):
    c = start = draw(alone=True)
    for _ in range(100):
        dx, db = gradients(c, fault)
        c = c | {"x": c["x"] - 0.02 * dx, "bias": c["bias"] - 0.02 * db}
    return loss(c, fault) < loss(start, fault) / 20


told(falling_loss)

# %% [markdown]
# With every fault, the loss falls to less than a twentieth. The gradient of a wrong layer leads downhill, too, and so
# does half a gradient.
#
# ## 3. A slow loop from the formula
#
# Write the formula again, for one query of one head, with slices in place of reshape and swapaxes. Two programs that
# share no trick share no fault of a trick.

# %%
def loop(c):
    D, output = c["x"].shape[-1] // c["heads"], np.zeros(c["x"].shape) + c["bias"]
    x, context = (a + c["places"][:a.shape[1]] for a in (c["x"], c.get("context", c["x"])))
    for b, i, h in np.ndindex(*x.shape[:2], c["heads"]):
        mine = slice(h * D, (h + 1) * D)
        query, keys, values = (a @ w[:, mine] for a, w in zip((x[b, i], context[b], context[b]), c["qkv"]))
        e = np.array([np.exp(query @ key / D ** 0.5) if may else 0 for key, may in zip(keys, c["mask"][b, 0, i])])
        output[b, i] += e / e.sum() @ values @ c["o"][mine]
    return output


def loop_with_equal_sizes(fault):
    c = draw(B=1, L=4, H=1, D=4, alone=True)
    c["mask"][:] = True
    return np.allclose(layer(c, fault), loop(c))


def loop_with_all_sizes_different(fault):
    return np.allclose(layer(draw(), fault), loop(draw()))


told(loop_with_equal_sizes, loop_with_all_sizes_different)

# %% [markdown]
# It is the same loop. With one head, one sequence, no mask, and 4 for all the rest, it misses the wrong root (E is D),
# the merge (there is nothing to join) and the wrong sequence (there is only one). **Make all sizes different**, and
# none of them 1.
#
# ## 4. What must change nothing
#
# You know what changes nothing. The softmax ignores what is added to all scores of a query. Keys may
# change places, together with their values. What is masked can be anything. In a causal layer, the future does not
# change the past.

# %%
def alike(fault, c, **changes):
    return np.allclose(layer(c, fault), layer(c | changes, fault))


def shifted_scores(fault):
    return alike(fault, draw(), shift=np.arange(4)[:, None])                # a number for each query


def permuted_keys(fault):
    c, order = draw() | {"places": np.zeros((8, 18))}, [2, 0, 4, 1, 3]
    return alike(fault, c, context=c["context"][:, order], mask=c["mask"][..., order])


def changed_masked_keys(fault):
    c = draw()
    c["mask"][..., 3] = False
    return alike(fault, c, context=c["context"] + 100 * np.eye(5)[3][:, None])


def changed_future(fault):
    c = draw(alone=True) | {"mask": causal_mask(4)[None, None]}
    after = c | {"x": c["x"] + 100 * np.eye(4)[3][:, None]}                 # another last token
    return np.allclose(layer(c, fault)[:, :3], layer(after, fault)[:, :3])


told(shifted_scores, permuted_keys, changed_masked_keys, changed_future)

# %% [markdown]
# "evaluation" is always caught, as no two runs agree, and "sequence" by an error, as L and S differ. But none of the
# four sees the wrong root, or the positions, which are wrong in the same way before and after.
#
# ## 5. Limits where the answer is known
#
# With one key, its weight is 1, whatever the score. The average of training is the output in evaluation. Half precision
# agrees with double precision, roughly, even where a query has no key.

# %%
def one_key(fault):
    c = draw(S=1)
    value = (c["context"] + c["places"][:1]) @ c["qkv"][2]                  # (B, 1, E), for all queries
    return np.allclose(layer(c, fault), value @ c["o"] + c["bias"])


def average_of_training(fault):
    c, generator = draw(), np.random.default_rng(0)
    mean = sum(layer(c, fault, generator) for _ in range(500)) / 500
    return np.abs(mean - layer(c, fault)).max() < 0.15


def half_precision(fault):
    c = draw()
    c["mask"][0, 0, 1] = False                          # no key for this query
    short = {name: np.float16(a) if np.asarray(a).dtype == float else a for name, a in c.items()}
    return np.allclose(layer(short, fault), layer(c, fault), atol=0.03)


told(one_key, average_of_training, half_precision)

# %% [markdown]
# In float16, −1e9 is −∞ (tutorial 07), and a row without keys has differences that are no numbers. In float32 it
# swallows the scores, and who may see nothing sees everything.

# %%
with np.errstate(all="ignore"):
    for dtype in (np.float16, np.float32):
        scores = np.array([1, 2], dtype) + np.array(-1e9).astype(dtype)
        e = np.exp(scores - scores.max())
        print(f"{dtype.__name__}: scores {scores}, weights {e / e.sum()}")

# %% [markdown]
# ## 6. Differences
#
# No check of outputs sees a fault in a gradient. Differences do (tutorial 09). Move x and the bias along drawn
# directions, and compare one number: it has every use in it, and every sum over broadcast axes.

# %%
def finite_differences(fault):
    c, rng = draw(alone=True), np.random.default_rng(1)
    dx, db = gradients(c, fault)
    u, w = rng.normal(size=dx.shape), rng.normal(size=db.shape)
    ahead, behind = (loss(c | {"x": c["x"] + h * u, "bias": c["bias"] + h * w}, fault) for h in (1e-6, -1e-6))
    return abs((ahead - behind) / 2e-6 - (dx * u).sum() - (db * w).sum()) < 1e-5


told(finite_differences)
assert gradcheck(lambda x: layer(draw(alone=True) | {"x": x}, "scale"), draw(alone=True)["x"])
assert np.allclose(np.full((4, 3), 7.0), np.full(3, 7.0))                   # a gradient that nobody reduced

# %% [markdown]
# The first eight faults pass, and "scale" passes `gradcheck`: it finds the right gradient of a wrong layer. And compare
# shapes before numbers: `np.allclose` broadcasts, as the last line shows.
#
# ## 7. Which check catches which fault?
#
# Each row is a fault, each column a check. Dark means caught.

# %%
caught = np.array(list(TABLE.values())).T
heatmap({"caught": caught}, rows=FAULTS, columns=list(TABLE))

# %%
needed = {name for name, column in TABLE.items() if (caught[column].sum(axis=1) == 1).any()}
print("without these, something escapes:", ", ".join(sorted(needed)))
assert len(needed) == 4
assert np.any([TABLE[name] for name in needed], axis=0).all()

# %% [markdown]
# Four checks catch everything here, and no three do. Why the others, then? They need no second program, which could
# share your misunderstanding, and they work in models of any size.
#
# ## Exercises
#
# Each asks for a check that accepts what is right and rejects every mutant.
#
# - **14-scale**: seven wrong roots.
# - **14-axis**: wrong axes, some of them right for a single matrix.
# - **14-merge**: heads that are cut and joined in wrong ways.
# - **14-mask**: masks that do not hide what they should.
# - **14-dropout**: check chance, without failing by chance.
# - **14-broadcast**: gradients of what was broadcast.
# - **14-accumulate**: gradients of what has several uses.
# - **14-half**: what leaves the range of float16?

# %%
exercises("14")

# %% [markdown]
# ## Quiz

# %%
quiz("14")

# %% [markdown]
# ## Read on
#
# `tests/test_attention.py` has a loop, `tests/test_mutants.py` plants wrong derivatives in every op, and
# `tests/test_faults.py` holds traps with their right values. (Vaswani et al. 2017, "Attention is all you need", §3.2.)
