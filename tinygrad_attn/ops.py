"""Floor 2. The calculus table: every primitive, with its derivatives below it, or below its twin.

In each entry `x, y` are the inputs, `out` the output, and `g` is dL/d out. A vjp returns dL/dx. It need not
undo broadcasting or restore a dtype: the walk does. `_keep` puts the axes of a reduction back, so that `g`
aligns with `x`. A comparison of Tensors is a plain array, so that masks are constants.

The names are NumPy's, so this module shadows the builtins `sum`, `max`, `min` and `abs`.
"""

from __future__ import annotations

import math
import string

import numpy as np

from .engine import operand, primitive
from .errors import ShapeError, broadcast_fault

# ------------------------------------------------------------------------------------------------ arithmetic

@primitive
def add(x, y):
    """x + y"""
    return x + y
add.defvjp(lambda g, out, x, y: g, lambda g, out, x, y: g)

@primitive
def subtract(x, y):
    """x − y"""
    return x - y
subtract.defvjp(lambda g, out, x, y: g, lambda g, out, x, y: -g)

@primitive
def multiply(x, y):
    """x · y, elementwise"""
    return x * y
multiply.defvjp(lambda g, out, x, y: g * y, lambda g, out, x, y: g * x)

@primitive
def divide(x, y):
    """x / y"""
    return x / y
divide.defvjp(lambda g, out, x, y: g / y, lambda g, out, x, y: -g * out / y)

@primitive
def negative(x):
    """−x"""
    return -x
negative.defvjp(lambda g, out, x: -g)

@primitive
def power(x, y):
    """xʸ, with 0⁰ = 1"""
    try:
        return x ** y
    except ValueError as error:
        if "negative integer powers" in str(error):
            raise TypeError("an integer to a negative power is no integer; .astype(float) the base") from None
        raise

def _power_dx(g, out, x, y):
    if isinstance(y, (int, float)):         # a plain number, with respect to which nobody differentiates again
        return g * y * x ** (y - 1) if y else g * 0
    undefined = (x == 0) & (y == 0)         # 0⁰ = 1 is flat in x, but xʸ⁻¹ is infinite
    return g * y * where(undefined, 1, x) ** where(undefined, 1, y - 1)
power.defvjp(_power_dx, lambda g, out, x, y: g * out * log(where((x == 0) & (y >= 0), 1, x)))      # 0ʸ is flat in y

@primitive
def matmul(x, y):
    """X Y: (..., n, k) @ (..., k, m) -> (..., n, m). A 1-D x is a row, a 1-D y a column; their 1 is dropped"""
    try:
        return np.matmul(x, y)
    except ValueError:
        rows, columns = np.shape(x)[-1:], np.shape(y)[-2:][:1]
        reason = ("an operand is 0-d; write * for a product with a number" if not (rows and columns) else
                  f"inner lengths {rows[0]} and {columns[0]} differ; they are summed over in pairs (see .mT)"
                  if rows != columns else f"batch axes: {broadcast_fault([(*np.shape(a)[:-2], 1, 1) for a in (x, y)])}")
        raise ShapeError(f"matmul: {np.shape(x)} @ {np.shape(y)}: {reason}") from None

def _matmul_dx(g, out, x, y):
    """g yᵀ"""
    if y.ndim == 1:
        return g[..., None] * y             # each row of X met the same column
    return (g if x.ndim > 1 else g[..., None, :]) @ y.mT

def _matmul_dy(g, out, x, y):
    """xᵀ g"""
    if x.ndim == 1:
        return x * g if y.ndim == 1 else x[:, None] * g[..., None, :]
    return x.mT @ g if y.ndim > 1 else (x.mT @ g[..., None])[..., 0]
matmul.defvjp(_matmul_dx, _matmul_dy)

# ------------------------------------------------------------------------------------- elementwise functions
@primitive
def exp(x):
    """eˣ"""
    return np.exp(x)
exp.defvjp(lambda g, out, x: g * out)

@primitive
def log(x):
    """ln x"""
    return np.log(x)
log.defvjp(lambda g, out, x: g / x)

@primitive
def sqrt(x):
    """√x, with √′(0) = +∞"""
    return np.sqrt(x)
sqrt.defvjp(lambda g, out, x: g * 0.5 / out)

@primitive
def tanh(x):
    """tanh x"""
    return np.tanh(x)
tanh.defvjp(lambda g, out, x: g * (1 - out * out))

@primitive
def sigmoid(x):
    """1 / (1 + e⁻ˣ), by way of e⁻|ˣ|, which cannot overflow"""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)
sigmoid.defvjp(lambda g, out, x: g * out * (1 - out))

@primitive
def softplus(x):
    """log(1 + eˣ), a smooth max(x, 0), without overflow"""
    return np.logaddexp(0, x)
softplus.defvjp(lambda g, out, x: g * sigmoid(x))

@primitive
def erf(x):
    """2/√π ∫₀ˣ exp(−t²) dt"""
    return narrow(np.vectorize(math.erf, otypes=[np.float64])(x).astype(_wide(x).dtype), x)
erf.defvjp(lambda g, out, x: g * (2 / math.sqrt(math.pi)) * exp(-x * x))

@primitive
def relu(x):
    """max(x, 0), with relu′(0) = 0"""
    return np.maximum(x, 0)
relu.defvjp(lambda g, out, x: np.where(x > 0, g, 0))

@primitive
def abs(x):
    """|x|, with |0|′ = 0"""
    return np.abs(x)
abs.defvjp(lambda g, out, x: g * np.sign(x))

@primitive
def clip(x, *, min=None, max=None):
    """x, but no less than min and no more than max; the gradient passes inside and at the bounds"""
    return np.clip(x, min, max)
clip.defvjp(lambda g, out, x, *, min=None, max=None: np.where(x == out, g, 0))

@primitive
def astype(x, *, dtype):
    """x in another floating dtype"""
    return np.asarray(x, dtype)
astype.defvjp(lambda g, out, x, *, dtype: g)

def at_least_single(x):
    """x, but half precision as single: half stops counting at 2048 and overflows at 65504."""
    return x.astype(np.float32) if hasattr(x, "dtype") and x.dtype.char == "e" else x

def _wide(x) -> np.ndarray:
    """x as floats in single precision at least: integers have no −∞."""
    x = np.asarray(x)
    return x if x.dtype.char in "fd" else x.astype(np.result_type(x.dtype, np.float32))

def narrow(out, x):
    """Back in half precision, if x was."""
    return out if at_least_single(x) is x else out.astype(np.float16)

# ------------------------------------------------------------------------------------------------- selection
@primitive
def where(condition, x, y):
    """x where the condition holds, else y; the gradient goes to the one chosen, and 0 to the other. A NaN in the
    branch not taken does no harm here, but may do so further back: 1/x at x = 0 sends back 0 · ∞ = NaN. Make the input
    safe: `where(x > 0, 1 / where(x > 0, x, 1), 0)`.

    >>> where([True, False], [1.0, 2.0], 0.0)
    array([1., 0.])
    """
    return np.where(condition, x, y)
where.defvjp(None, lambda g, out, condition, x, y: np.where(condition, g, 0),
             lambda g, out, condition, x, y: np.where(condition, 0, g))

@primitive
def maximum(x, y):
    """max(x, y), elementwise; where they are equal each gets half of the gradient.

    >>> maximum([1.0, 5.0], 2.0)
    array([2., 5.])
    """
    return np.maximum(x, y)

@primitive
def minimum(x, y):
    """min(x, y), elementwise; where they are equal each gets half of the gradient.

    >>> minimum([1.0, 5.0], 2.0)
    array([1., 2.])
    """
    return np.minimum(x, y)

def _extremum_dx(g, out, x, y):
    return np.where(x == y, g / 2, np.where(x == out, g, 0))
maximum.defvjp(_extremum_dx, lambda g, out, x, y: _extremum_dx(g, out, y, x))
minimum.defvjp(_extremum_dx, lambda g, out, x, y: _extremum_dx(g, out, y, x))

@primitive
def tril(x, *, k=0):
    """The lower triangle of the last two axes, up to diagonal k, and 0 above"""
    return np.tril(x, k)
tril.defvjp(lambda g, out, x, *, k=0: tril(g, k=k))

@primitive
def triu(x, *, k=0):
    """The upper triangle of the last two axes, from diagonal k, and 0 below"""
    return np.triu(x, k)
triu.defvjp(lambda g, out, x, *, k=0: triu(g, k=k))

# ------------------------------------------------------------------------------------------------ reductions
def _keep(g, x, axis):
    """g, of a reduction of x over `axis`, with the reduced axes back as axes of length 1."""
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return g.reshape(tuple(1 if i in axes or i - x.ndim in axes else n for i, n in enumerate(x.shape)))

@primitive
def sum(x, *, axis=None, keepdims=False):
    """Σ x"""
    return narrow(np.add.reduce(at_least_single(x), axis=axis, keepdims=keepdims), x)
sum.defvjp(lambda g, out, x, *, axis=None, keepdims=False: np.broadcast_to(_keep(g, x, axis), x.shape))

@primitive
def mean(x, *, axis=None, keepdims=False):
    """Σ x / n"""
    total = np.add.reduce(at_least_single(x), axis=axis, keepdims=keepdims)
    return narrow(total / np.size(x) * total.size if total.size else total, x)
mean.defvjp(lambda g, out, x, *, axis=None, keepdims=False:
            np.broadcast_to(_keep(g, x, axis) * (1 / _count(x, out)), x.shape))

def _count(x, out) -> float:
    """How many elements of x went into each of out; 1 for an empty x, where there is nothing to scale."""
    return x.size / out.size if x.size else 1.0

@primitive
def var(x, *, axis=None, keepdims=False, ddof=0):
    """Σ (x − mean)² / (n − ddof)"""
    return narrow(np.var(_wide(x), axis=axis, keepdims=keepdims, ddof=ddof), x)

def _var_dx(g, out, x, *, axis=None, keepdims=False, ddof=0):
    n = _count(x, out) - ddof
    return _keep(g, x, axis) * (2 / n if n > 0 else math.nan) * (x - mean(x, axis=axis, keepdims=True))
var.defvjp(_var_dx)

@primitive
def max(x, *, axis=None, keepdims=False):
    """The largest; tied elements share its gradient equally, so that the shares sum to 1"""
    return np.max(x, axis=axis, keepdims=keepdims)

@primitive
def min(x, *, axis=None, keepdims=False):
    """The smallest; tied elements share its gradient equally, so that the shares sum to 1"""
    return np.min(x, axis=axis, keepdims=keepdims)

def _shared(g, out, x, *, axis=None, keepdims=False):
    tied = x == _keep(out, x, axis)
    return np.where(tied, _keep(g, x, axis) * (1 / np.sum(tied, axis=axis, keepdims=True)), 0)
max.defvjp(_shared)
min.defvjp(_shared)

@primitive
def cumsum(x, *, axis):
    """outᵢ = x₀ + … + xᵢ along one axis, so that xᵢ has a part in outᵢ and all after it"""
    return narrow(np.cumsum(at_least_single(x), axis=axis), x)
cumsum.defvjp(lambda g, out, x, *, axis: _flip(cumsum(_flip(g, axis), axis=axis), axis))

def _flip(x, axis):
    return x[(*(slice(None),) * (axis % x.ndim), slice(None, None, -1))]

@primitive
def softmax(x, *, axis=-1, where=None):
    """pᵢ = exp xᵢ / Σⱼ exp xⱼ: scores made positive weights that sum to 1 along `axis`.

    The boolean `where`, broadcast to x, tells which elements take part. The others have weight exactly 0, and
    so has a score of −∞; where nothing takes part all weights are 0, and their gradient too. The largest
    score is subtracted first, which changes no ratio and keeps exp from overflowing. The Jacobian is
    diag(p) − p pᵀ, so dL/dx = p ∘ (g − Σ g∘p). (Bridle 1990; Vaswani et al. 2017, §3.2.1.)

    >>> softmax([0.0, 1000.0])
    array([0., 1.])
    >>> softmax([1.0, 5.0, 1.0], where=[True, False, True])
    array([0.5, 0. , 0.5])
    """
    z = _wide(x) if where is None else _masked_out(where, _wide(x))
    e = np.exp(z - _top(z, axis))                           # exp(−∞) = 0
    total = np.add.reduce(e, axis=axis, keepdims=True)      # at least exp(0) = 1, or 0 where nothing takes part
    return narrow(e / np.maximum(total, 0.5), x)
softmax.defvjp(lambda g, out, x, *, axis=-1, where=None: out * (g - (g * out).sum(axis=axis, keepdims=True)))

def _top(x, axis) -> np.ndarray:
    """The largest along `axis`, to be subtracted; finite also where all are −∞, or where there are none."""
    return np.maximum.reduce(x, axis=axis, keepdims=True, initial=np.finfo(x.dtype).min)

def _masked_out(where, x) -> np.ndarray:
    """x, and −∞ for what does not take part."""
    if np.asarray(where).dtype != bool:
        raise TypeError(f"where= must be boolean, True for what takes part; it is {np.asarray(where).dtype}")
    if np.broadcast_shapes(np.shape(where), x.shape) != x.shape:
        raise ShapeError(f"softmax: where= of shape {np.shape(where)} does not broadcast to x, of shape {x.shape}")
    return np.where(where, x, -np.inf)

@primitive
def logsumexp(x, *, axis=-1, keepdims=False):
    """log Σ exp x without overflow; its gradient is softmax(x).

    >>> logsumexp([1000.0, 1000.0]).round(6)
    np.float64(1000.693147)
    """
    z = _wide(x)
    top = np.minimum(_top(z, axis), np.finfo(z.dtype).max)      # +∞ − top is +∞, and not ∞ − ∞
    with np.errstate(divide="ignore"):      # log Σ = −∞ where nothing is left to sum
        out = top + np.log(np.exp(z - top).sum(axis=axis, keepdims=True))
    return narrow(out if keepdims else np.squeeze(out, axis), x)
logsumexp.defvjp(lambda g, out, x, *, axis=-1, keepdims=False: _keep(g, x, axis) * softmax(x, axis=axis))

@primitive
def log_softmax(x, *, axis=-1):
    """x − log Σ exp x: the logarithm of softmax, finite also where softmax underflows to 0.

    >>> log_softmax([0.0, 1000.0])
    array([-1000.,     0.])
    """
    z = _wide(x)
    z = z - _top(z, axis)                   # first, so that a large offset takes no digits
    return narrow(z - logsumexp(z, axis=axis, keepdims=True), x)
log_softmax.defvjp(lambda g, out, x, *, axis=-1: g - exp(out) * g.sum(axis=axis, keepdims=True))

# ------------------------------------------------------------------------------------------- shape and place
@primitive
def reshape(x, *, shape):
    """The same elements in the same order in another shape"""
    return x.reshape(shape)
reshape.defvjp(lambda g, out, x, *, shape: g.reshape(x.shape))

@primitive
def squeeze(x, *, axis=None):
    """x without its axes of length 1, or without `axis`"""
    return np.squeeze(x, axis)
squeeze.defvjp(lambda g, out, x, *, axis=None: g.reshape(x.shape))

@primitive
def expand_dims(x, *, axis):
    """x with new axes of length 1, at `axis` of the output"""
    return np.expand_dims(x, axis)
expand_dims.defvjp(lambda g, out, x, *, axis: g.reshape(x.shape))

@primitive
def transpose(x, *, axes=None):
    """x with its axes in another order, reversed if none is given"""
    return x.transpose(axes)
transpose.defvjp(lambda g, out, x, *, axes=None:
                 g.transpose(None if axes is None else tuple(np.argsort([a % x.ndim for a in axes]))))

@primitive
def swapaxes(x, *, axis1, axis2):
    """x with two axes exchanged"""
    return x.swapaxes(axis1, axis2)
swapaxes.defvjp(lambda g, out, x, *, axis1, axis2: g.swapaxes(axis1, axis2))

@primitive
def broadcast_to(x, *, shape):
    """x repeated to fill `shape`"""
    return np.broadcast_to(x, shape)
broadcast_to.defvjp(lambda g, out, x, *, shape: g)         # the walk sums over the repetitions

@primitive
def _concatenate(*xs, axis):
    return np.concatenate(xs, axis)

def _pieces(wanted, g, out, *xs, axis):
    before = (slice(None),) * (axis % g.ndim)
    ends = np.cumsum([x.shape[axis] for x in xs]).tolist()
    return {i: g[(*before, slice(ends[i] - xs[i].shape[axis], ends[i]))] for i in wanted}
_concatenate.defvjp(joint=_pieces)

def concatenate(arrays, axis=0):
    """The arrays one after another along an axis they have, None for all of them, flat; the gradient is cut into
    the same pieces.

    >>> concatenate([[1.0, 2.0], [3.0]])
    array([1., 2., 3.])
    """
    if axis is None:
        arrays, axis = [reshape(np.asarray(x) if np.isscalar(x) else x, shape=-1) for x in arrays], 0
    return _concatenate(*arrays, axis=axis)

def stack(arrays, axis=0):
    """The arrays, all of one shape, side by side along a new axis.

    >>> stack([[1.0, 2.0], [3.0, 4.0]], axis=1)
    array([[1., 3.],
           [2., 4.]])
    """
    arrays = list(arrays)
    shapes = [np.shape(x) for x in arrays]
    if len(set(shapes)) != 1:
        raise ShapeError(f"stack: it takes one or more arrays of one shape, not of {shapes}")
    return concatenate([expand_dims(x, axis=axis) for x in arrays], axis)

@primitive
def getitem(x, *, index):
    """x[index], for every kind of index that NumPy has"""
    return x[index]

@primitive
def scatter(x, *, index, shape):
    """Zeros of `shape` with x added at `index`, once for each time that it names a place: getitem transposed"""
    wide = at_least_single(x)
    out = np.zeros(shape, wide.dtype)
    if any(isinstance(i, np.ndarray) and i.dtype != bool for i in index):
        np.add.at(out, index, wide)
    else:                                   # slices and masks name no place twice
        out[index] = wide
    return narrow(out, x)
getitem.defvjp(lambda g, out, x, *, index: scatter(g, index=index, shape=x.shape))
scatter.defvjp(lambda g, out, x, *, index, shape: getitem(g, index=index))

def frozen_index(index) -> tuple:
    """An index as a tuple that nobody can change later: lists, arrays and Tensors in it become new arrays."""
    def freeze(i):
        if i is None or i is Ellipsis or isinstance(i, (int, slice, np.integer, np.bool)):
            return i
        return np.array(operand(i), dtype=np.intp if isinstance(i, list) and not i else None)
    return tuple(freeze(i) for i in (index if isinstance(index, tuple) else (index,)))

# ---------------------------------------------------------------------------------------- einsum and dropout
@primitive
def _einsum(*xs, terms, output):
    return np.einsum(f"{','.join(terms)}->{output}", *xs, optimize=len(xs) > 2)

def _einsum_vjps(wanted, g, out, *xs, terms, output):
    """dL/dxᵢ is the einsum of g and the other inputs, onto the letters of xᵢ. Two kinds of letter want one
    input more: for one that xᵢ alone has, ones, since all places it was summed over share the gradient; for
    one that xᵢ has twice, an identity, since only the diagonal was used."""
    def wrt(i):
        rest = [(output, g), *((t, x) for j, (t, x) in enumerate(zip(terms, xs)) if j != i)]
        target = ""
        for letter, length in zip(terms[i], np.shape(xs[i])):
            if letter in target:
                twin = next(c for c in string.ascii_letters if c not in "".join([target, output, *terms]))
                rest.append((letter + twin, np.eye(length, dtype=g.dtype)))
                letter = twin
            elif not any(dict(zip(t, np.shape(x))).get(letter) == length for t, x in rest):
                rest.append((letter, np.ones(length, g.dtype)))
            target += letter
        return _einsum(*(x for _, x in rest), terms=[t for t, _ in rest], output=target)
    return {i: wrt(i) for i in wanted}
_einsum.defvjp(joint=_einsum_vjps)

def einsum(subscripts, *operands):
    """Einstein's summation: each letter names an axis, and those not in the output are summed over.

    >>> einsum("ik,kj->ij", [[1.0, 2.0]], [[3.0], [4.0]])   # a matrix product
    array([[11.]])
    """
    if not isinstance(subscripts, str) or len(subscripts.partition("->")[0].split(",")) != len(operands):
        raise ShapeError(f"einsum: {subscripts!r} with {len(operands)} operands; write one group of letters for "
                         "each, as in einsum('ij,jk->ik', x, y)")
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    terms, letters = inputs.split(","), [c for c in string.ascii_letters if c not in subscripts]
    widths = [np.ndim(x) - len(t) + 3 if "..." in t else 0 for t, x in zip(terms, operands)]
    spare = "".join(letters[:sorted(widths)[-1]])           # "..." as letters, aligned from the right
    if not arrow:
        named = "".join(terms).replace(".", "")
        output = "..." + "".join(sorted(c for c in set(named) if named.count(c) == 1))
    if spare and "..." not in output:
        raise ShapeError(f"einsum: the output of {subscripts!r} must have the '...' of the inputs; name axes to sum")
    terms = [t.replace("...", spare[len(spare) - n:]) for t, n in zip(terms, widths)]
    return _einsum(*operands, terms=terms, output=output.replace("...", spare))

def dropout(x, p, *, training=True, rng=None):
    """In training, zero each element with probability p and divide the others by 1 − p, to keep the mean.

    `rng` is a `np.random.Generator` or a seed. (Srivastava et al. 2014.)

    >>> dropout(np.ones(4), 0.5, rng=0)
    array([2., 0., 0., 0.])
    """
    if not 0 <= p < 1:
        raise ValueError(f"dropout: p={p!r}; the probability must be at least 0 and below 1")
    if not training or p == 0:
        return x
    if rng is None:
        raise ValueError("dropout: give rng=, a np.random.Generator or a seed; there is no global one")
    return where(np.random.default_rng(rng).random(np.shape(x)) >= p, x / (1 - float(p)), 0)
