# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # From a dictionary to soft lookup
#
# **The problem.** *The animal didn't cross the street because it was too tired.* What was tired? The animal. Now change
# the last word: *… because it was too wide.* What was wide? The street. One word has changed, and "it" means another
# thing. A program that reads must find out, for each word, which others matter to it, and they may stand anywhere.
#
# Two usual ways to combine numbers cannot do that. You will turn Python's dict into a lookup that can, and see how its
# answer moves when the question moves. That lookup is attention, the subject of this course.
#
# You need: Python, NumPy arrays, the dot product and the derivative. No machine learning.

# %%
import numpy as np

from tinygrad_attn import Tensor, attention, gradcheck, softmax
from tinygrad_attn.learn import check, exercises, quiz
from tinygrad_attn.plots import curves, heatmap

# %% [markdown]
# ## 1. Two mixtures that are fixed
#
# A neural network, or model, is a function with many numbers in it that are learned: changed a little, again and again,
# until its answers are good. It works on numbers, so each word becomes a row of them, its *features*. With 4 each, our
# 11 words are an array X of shape (11, 4).
#
# **A matrix mixes features**, as in a multilayer perceptron (MLP). Applied to each word, `X @ W` makes a row's new
# features of that row's old ones. What stands in the other rows makes no difference.
#
# **A convolution mixes neighbours.** Each new row is a weighted sum of the old row and those beside it, here with
# weights ¼, ½, ¼. Follow the animal, 1 where it is and 0 elsewhere. Each mixing, or layer, takes it one word further:

# %%
words = "The animal didn't cross the street because it was too tired".split()
animal, it = words.index("animal"), words.index("it")
window = [0.25, 0.5, 0.25]
trace, layers = np.zeros(len(words)), 0                 # (11,)
trace[animal] = 1.0
while trace[it] == 0:
    trace, layers = np.convolve(trace, window, mode="same"), layers + 1
print(f"{len(words)} words; the animal reaches it after {layers} layers, with weight {trace[it]:.6f}")

# %% [markdown]
# A wider window would reach further. But the weights were chosen before the sentence was read: they are the same for
# "tired" and for "wide". Language needs weights that depend on what the words *are*, at any distance.
#
# ## 2. A dict is a hard lookup
#
# Python's dict finds by content. It looks for the *key* that equals your *query*, wherever that is, and returns the
# *value* stored there.

# %%
sizes = {"animal": 10.0, "street": 20.0}
print(sizes["animal"], "animals" in sizes)

# %% [markdown]
# It is hard in two ways. A key equals the query or it does not: "animals" finds nothing. And one value is returned,
# whole.
#
# Soften the first. Make queries and keys vectors, and compare them by the dot product, which grows the more they point
# the same way. These products are the *scores*. Take the value whose key has the highest.

# %%
def hard_lookup(query, keys, values):
    return values[np.argmax(keys @ query)]


corner = np.array([[1.0, 0.0], [0.0, 1.0]])             # (S, D): two keys of width 2
two = np.array([10.0, 20.0])                            # (S,): a value for each
for query in ([0.9, 0.3], [0.6, 0.59], [0.6, 0.61]):
    print(query, "->", hard_lookup(np.array(query), corner, two))

# %% [markdown]
# Every query finds something. But from the first to the second the query moves a lot, and the answer not at all; then
# the query moves by 0.02, and the answer jumps. Nothing tells where a better query lies, and that is what you must know
# to *learn* a query.
#
# ## 3. A soft lookup
#
# So let every value have a say: the larger its score, the more. With a query q, keys k₁ … k_S and values v₁ … v_S:
#
# $$s_i = q \cdot k_i, \qquad w_i = \frac{e^{s_i}}{\sum_j e^{s_j}}, \qquad \text{answer} = \sum_i w_i v_i.$$
#
# The exponential makes a positive number of every score. The division makes these *weights* sum to 1. The two steps
# together are the *softmax*. The answer is a weighted average of the values.
#
# Step by step, with three keys. A value may be a vector, too; here it has two components. Shapes stand at the ends of
# lines: S is the number of keys, D the width of query and keys, which is how many components they have, and Dv that of
# the values.

# %%
query = np.array([1.0, 0.0])                            # (D,) = (2,)
keys = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])   # (S, D) = (3, 2)
values = np.array([[10.0, 0.0], [0.0, 20.0], [30.0, 0.0]])      # (S, Dv) = (3, 2)

scores = keys @ query                                   # (S,)
positive = np.exp(scores)
weights = positive / positive.sum()                     # (S,)
answer = weights @ values                               # (Dv,)
print("scores", scores, "weights", weights.round(4), "answer", answer.round(4))
assert np.allclose(weights, [0.4223187983, 0.1553624035, 0.4223187983])
assert np.allclose(weights, softmax(scores))

# %% [markdown]
# The first and the third key are the same vector, so they have the same weight. The second is at right angles to the
# query, and still counts a little: its score is 0, and e⁰ is 1. From here on, `softmax` from the package does the
# middle two steps; tutorial 03 takes it apart.
#
# Networks divide the scores by the root of the width first, here √2. The weights are then more alike. Tutorial 05 says
# why; in this tutorial the scores stay as they are.

# %%
divided = softmax(scores / np.sqrt(2))
print("weights, divided by √2:", divided.round(4))
assert np.allclose(divided, [0.4011120927, 0.1977758146, 0.4011120927])

# %% [markdown]
# ## 4. Query, key and value
#
# The **query** says what a position *looks for*; the **key**, what it *can be found* under; the **value**, what it
# *tells* when it has been found. Key and value are two things, as the title of a book and its text are.
#
# Back to the sentence. Each word gets a key of two numbers, "can be tired" and "can be wide", 0 for all words but two.
# The query of "it" asks for what the last word says. These numbers are made by hand; a network learns them.

# %%
found_under = np.zeros((len(words), 2))                 # (S, D) = (11, 2)
found_under[animal] = [2.0, 0.0]
found_under[words.index("street")] = [0.0, 2.0]
tired = softmax(found_under @ [2.0, 0.0])               # (S,)
wide = softmax(found_under @ [0.0, 2.0])
for last, weights in (("tired", tired), ("wide", wide)):
    print(f"… it was too {last}: weight {weights.max():.2f} on {words[np.argmax(weights)]}")

# %% [markdown]
# Each row of the picture shows what "it" is combined with, the darker, the more. The rows of the window are equal.
# Those of the soft lookup have one dark place each, at "animal" or at "street", and a little everywhere else.

# %%
neighbours = np.zeros(len(words))
neighbours[it - 1:it + 2] = window
heatmap({"what “it” is combined with": [neighbours, neighbours, tired, wide]}, columns=[*words[:-1], "last word"],
        rows=["window, tired", "window, wide", "soft lookup, tired", "soft lookup, wide"])

# %% [markdown]
# ## 5. From soft to hard
#
# Multiply all scores by larger and larger numbers: first 0.6 and 0.4, then those of section 3. (A query c times as long
# does the same.)

# %%
for stretch in (1, 4, 16, 64):
    clear, tied = softmax(stretch * np.array([0.6, 0.4])), softmax(stretch * scores)
    print(f"times {stretch:2}: {clear.round(3)}  {tied.round(3)}")
assert np.allclose(clear, [1, 0], atol=1e-5)
assert np.allclose(tied, [0.5, 0, 0.5])

# %% [markdown]
# In the limit, the highest score takes all, and soft lookup becomes hard lookup. With one exception: keys that *tie*
# for the highest score share the weight equally, and the answer is the mean of their values. `argmax` takes the first.
#
# Now let the query turn from the first key of section 2 to the second. (Many queries, one a row; `softmax` takes each
# row by itself.) The hard answer is a step at 45 degrees. The soft one rises smoothly from 12.7 to 17.3. The more its
# scores are stretched, the more it looks like the step.

# %%
degrees = np.linspace(0, 90, 181)
turning = np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], axis=1)      # (181, D)
lines = {"hard": (degrees, two[np.argmax(turning @ corner.T, axis=1)])}
for stretch, name in ((16, "soft, scores times 16"), (4, "soft, scores times 4"), (1, "soft")):
    lines[name] = degrees, softmax(stretch * turning @ corner.T) @ two
assert [round(float(lines["soft"][1][end]), 1) for end in (0, -1)] == [12.7, 17.3]
curves(lines, xlabel="direction of the query, in degrees", ylabel="answer")

# %% [markdown]
# ## 6. What can be differentiated
#
# A *derivative* says how the answer moves when an input moves a little. So try: move one component of the query by a
# small h to both sides, take the difference of the answers, divide by 2h. This is a *finite difference*. Here it is for
# the first component of the answer of section 3:

# %%
told = values[:, 0]                                     # (S,): 10, 0, 30


def soft(query):
    return softmax(keys @ query) @ told


h = 1e-5
right, up = np.array([h, 0.0]), np.array([0.0, h])
first = (soft(query + right) - soft(query - right)) / (2 * h)
second = (soft(query + up) - soft(query - up)) / (2 * h)
print(f"answer {soft(query):.4f}, differences {first:.4f} and {second:.4f}")
assert hard_lookup(query + right, keys, told) == hard_lookup(query - right, keys, told)

# %% [markdown]
# The two numbers together are the *gradient* with respect to the query. The hard lookup's is 0, except where it jumps:
# no help in learning queries or keys. The soft lookup can be differentiated with respect to query, keys and values. For
# vᵢ its derivative is wᵢ. For the query it is
#
# $$\frac{\partial\,\text{answer}}{\partial q} = \sum_i w_i \,(v_i - \text{answer})\, k_i.$$
#
# Read it as advice to the query, if the answer is to grow: go towards keys whose values are above the answer, away from
# those whose values are below it, each in proportion to its weight. Tutorial 03 derives it. Is it true?

# %%
def advice(query):
    weights = softmax(keys @ query)                     # (S,)
    return (weights * (told - weights @ told)) @ keys   # (D,)


print("by the formula:", advice(query).round(4))
assert np.allclose(advice(query), [first, second], atol=1e-8)

moving = query
for step in range(101):
    if step in (0, 1, 10, 100):
        print(f"after {step:3} steps: query {moving.round(2)}, answer {soft(moving):.2f}")
    moving = moving + 0.1 * advice(moving)              # a small step
assert 19.9 < soft(moving) < 20

# %% [markdown]
# A query that takes the advice again and again comes near 20, and never above. The value 30 is there, but its key
# equals that of the value 10. No query can tell them apart, so their mean is the best. For more, the *keys* have to
# move.
#
# ## 7. Outlook: let the package do it
#
# You moved two numbers, one after the other; a model has millions. A `Tensor` remembers how it was computed, and
# `backward()` finds all derivatives in one go (tutorial 02). `attention` is our soft lookup, for many queries at once,
# one a row; `scale=1.0` leaves the scores undivided. `gradcheck` compares derivatives with finite differences, for
# every number of all three inputs, and fails if they disagree. Its report has, for each input, the largest error, as
# it is and divided by the largest derivative, and where it is. The *Jacobian* is the table of all derivatives.

# %%
q = Tensor(query[None, :], requires_grad=True)          # (L, D) = (1, 2): one query
output, weights = attention(q, keys, values, scale=1.0)     # (L, Dv), (L, S)
output[0, 0].backward()
print("answer", output.numpy().round(4), "gradient", q.grad.round(4))
assert np.allclose(output.numpy()[0], answer)
assert np.allclose(q.grad[0], [first, second], atol=1e-8)
print(gradcheck(lambda q, k, v: attention(q, k, v, scale=1.0)[0], (query[None, :], keys, values)))

# %% [markdown]
# ## Exercises
#
# - **01-weighted-average**: write the last step of a lookup, with weights that need not sum to 1.
# - **01-first-weight**: predict a weight, by hand.
# - **01-stretched**: predict the answer when scores are stretched very far.
# - **01-soft-lookup**: write the whole lookup.
# - **01-nudge**: write finite differences for any width. You will check gradients with them.
# - **01-trial**: write a test that tells a soft lookup from six that only look like one.
#
# There are three kinds. *Write* asks for a function, *predict* for a value (think first, then compute). *Find the bug*
# asks for a test, which must accept what is right and reject what is not.
#
# **In a notebook**, hand your answer, a function or a value, to `check`, with the name of the exercise. It shows an
# input that failed, what was expected, and a hint. Try as often as you like.

# %%
def weighted_average(weights, values):
    return weights @ values                             # is that all?


check("01-weighted-average", weighted_average)

# %% [markdown]
# **In a terminal**, have a starting file written, edit it, and have it checked. If you are stuck, ask for a hint:
#
# ```bash
# python3 -m tinygrad_attn learn start 01-weighted-average average.py
# python3 -m tinygrad_attn learn check 01-weighted-average average.py
# python3 -m tinygrad_attn learn hint 01-weighted-average
# ```

# %%
exercises("01")

# %% [markdown]
# ## Quiz
#
# In a terminal, `python3 -m tinygrad_attn learn quiz 01` asks these, and says why an answer is right or wrong.

# %%
quiz("01")

# %% [markdown]
# ## Read on
#
# `tinygrad_attn/attention.py` begins with this story, and `attention` in it is the lookup with all its options. Most of
# them you need not understand yet. The paper: Vaswani et al. (2017), "Attention is all you need", §3.2.1.
