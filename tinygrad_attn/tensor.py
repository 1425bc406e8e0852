"""Floor 3. `Tensor`: a value with NumPy's operators, methods and functions, each of them a primitive.

There is no arithmetic on this floor. A method hands its arguments to the op of the same name; the tables at the
end tell NumPy's own functions where to go when they are called with a Tensor.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from . import engine, ops
from .engine import Value, operand
from .errors import GraphError, ShapeError


class Tensor(Value):
    """An array with respect to which results can be differentiated.

    The data is copied and from then on read-only, so that no recorded graph can change unnoticed. Floats
    keep their dtype; Python's are float64. `requires_grad=True` makes a leaf, of a floating dtype, whose `.grad`
    is filled by `backward()`. `name` is shown in graphs and errors.

    >>> x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    >>> y = (x * x).sum()
    >>> y.backward()                        # dy/dx = 2x
    >>> x.grad
    array([2., 4., 6.])
    """

    __slots__ = ()                          # and no __getattr__: with one, reading a slot takes twice as long

    def __init__(self, data: Any, requires_grad: bool = False, *, dtype: Any = None, name: str | None = None) -> None:
        if isinstance(data, Value) or (isinstance(data, (list, tuple)) and any(isinstance(x, Value) for x in data)):
            raise TypeError("a Tensor made of Tensors would cut their graph: write stack([...]) to keep it, .astype() "
                            "for another dtype; if a new leaf is meant, Tensor(t.numpy(), ...)")
        self.grad, self.node, self.name = None, None, name
        self._array = _owned(operand(data), dtype)
        self.requires_grad = requires_grad

    @property
    def data(self) -> Any:
        """The array itself, read-only; a NumPy scalar if the shape is (). A leaf can be given a new one of the
        same shape, copied in the leaf's dtype: `w.data = w.data - lr * w.grad`, and not `-=`, which writes."""
        return self._array

    @data.setter
    def data(self, new: Any) -> None:
        if self.node:
            raise GraphError(f"the data of a result is what {self.node.op.name} computed; only a leaf's can be set")
        if np.shape(operand(new)) != self.shape:
            raise ShapeError(f"data: the leaf has shape {self.shape}, the new data {np.shape(operand(new))}")
        self._array = _owned(np.asarray(operand(new)).astype(self.dtype, casting="same_kind", copy=False))

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to this tensor. It can be set on a leaf."""
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, flag: bool) -> None:
        if self.node:
            raise GraphError("requires_grad of a result follows from its inputs; .detach() takes it out of the graph")
        if flag and self.dtype.kind != "f":
            raise TypeError(f"requires_grad=True needs a floating dtype, not {self.dtype}, on which nothing has a "
                            "derivative: write 1.0 for 1, or dtype=float")
        self._requires_grad = bool(flag)

    def backward(self, gradient: Any = None, retain_graph: bool = False) -> None:
        """Add d self / d leaf to `.grad`, a NumPy array, of every leaf that this tensor was computed from.

        A single element needs no `gradient`; several need dL/d self, in their shape. The graph is freed, unless
        `retain_graph`: a second walk through it is a GraphFreedError.
        """
        engine.backward(self, gradient, retain_graph)

    def zero_grad(self) -> None:
        """Forget the gradient: `.grad` is None again."""
        self.grad = None

    def detach(self) -> Tensor:
        """The same data outside the graph: a constant."""
        return engine.result(self._array)

    def numpy(self) -> np.ndarray:
        """The data as an ndarray, read-only and not copied."""
        return np.broadcast_to(self._array, self.shape)

    def item(self) -> Any:
        """The one element, as a Python number."""
        return self._array.item()

    shape = property(lambda self: self._array.shape, doc="The length of each axis.")
    ndim = property(lambda self: self._array.ndim, doc="The number of axes.")
    size = property(lambda self: self._array.size, doc="The number of elements.")
    dtype = property(lambda self: self._array.dtype, doc="The type of the elements.")
    T = property(lambda self: ops.transpose(self), doc="All axes in reverse order.")
    mT = property(lambda self: self.swapaxes(-1, -2), doc="The last two axes exchanged: each matrix transposed.")

    # Operators. There are no in-place ones, so that `t += 1` binds t to a new tensor.
    def __add__(self, other): return ops.add(self, other)
    def __radd__(self, other): return ops.add(other, self)
    def __sub__(self, other): return ops.subtract(self, other)
    def __rsub__(self, other): return ops.subtract(other, self)
    def __mul__(self, other): return ops.multiply(self, other)
    def __rmul__(self, other): return ops.multiply(other, self)
    def __truediv__(self, other): return ops.divide(self, other)
    def __rtruediv__(self, other): return ops.divide(other, self)
    def __pow__(self, other): return ops.power(self, other)
    def __rpow__(self, other): return ops.power(other, self)
    def __matmul__(self, other): return ops.matmul(self, other)
    def __rmatmul__(self, other): return ops.matmul(other, self)
    def __neg__(self): return ops.negative(self)
    def __pos__(self): return self
    def __abs__(self): return ops.abs(self)
    def __getitem__(self, index): return ops.getitem(self, index=ops.frozen_index(index))

    def __setitem__(self, index, value):
        raise TypeError("a Tensor's elements cannot be set, since a graph may need the old ones; make a new tensor, by "
                        "where(mask, value, t) or concatenate([t[:i], value, t[i + 1:]])")

    # What has no derivative is a plain array. Hashing is by identity.
    def __eq__(self, other): return self._array == _plain(other)
    def __ne__(self, other): return self._array != _plain(other)
    def __lt__(self, other): return self._array < _plain(other)
    def __le__(self, other): return self._array <= _plain(other)
    def __gt__(self, other): return self._array > _plain(other)
    def __ge__(self, other): return self._array >= _plain(other)
    def argmax(self, axis=None): return self._array.argmax(axis)
    def argsort(self, axis=-1): return self._array.argsort(axis)
    __hash__ = Value.__hash__

    # Python's conversions, of a single element, and of the first axis.
    def __bool__(self): return bool(self._array)
    def __float__(self): return float(self._array)
    def __int__(self): return int(self._array)
    def __index__(self): return operator.index(self.item())
    def __format__(self, spec): return format(self.item(), spec) if spec else repr(self)
    def __len__(self): return len(self.numpy())
    def __iter__(self): return (self[i] for i in range(len(self)))

    # Methods, in NumPy's vocabulary.
    def sum(self, axis=None, *, keepdims=False): return ops.sum(self, axis=axis, keepdims=keepdims)
    def mean(self, axis=None, *, keepdims=False): return ops.mean(self, axis=axis, keepdims=keepdims)
    def max(self, axis=None, *, keepdims=False): return ops.max(self, axis=axis, keepdims=keepdims)
    def min(self, axis=None, *, keepdims=False): return ops.min(self, axis=axis, keepdims=keepdims)
    def var(self, axis=None, *, ddof=0, keepdims=False): return ops.var(self, axis=axis, ddof=ddof, keepdims=keepdims)
    def exp(self): return ops.exp(self)
    def log(self): return ops.log(self)
    def sqrt(self): return ops.sqrt(self)
    def tanh(self): return ops.tanh(self)
    def relu(self): return ops.relu(self)
    def sigmoid(self): return ops.sigmoid(self)
    def abs(self): return ops.abs(self)
    def clip(self, min=None, max=None): return ops.clip(self, min=min, max=max)
    def softmax(self, axis=-1, where=None): return ops.softmax(self, axis=axis, where=where)
    def log_softmax(self, axis=-1): return ops.log_softmax(self, axis=axis)
    def swapaxes(self, axis1, axis2): return ops.swapaxes(self, axis1=axis1, axis2=axis2)
    def broadcast_to(self, shape): return ops.broadcast_to(self, shape=shape)
    def squeeze(self, axis=None): return ops.squeeze(self, axis=axis)
    def expand_dims(self, axis): return ops.expand_dims(self, axis=axis)
    def cumsum(self, axis=None): return ops.cumsum(self.reshape(-1) if axis is None else self, axis=axis or 0)
    def reshape(self, *shape): return ops.reshape(self, shape=_one_or_many(shape) if shape else ())
    def transpose(self, *axes): return ops.transpose(self, axes=_one_or_many(axes) if axes else None)

    def astype(self, dtype):
        """In another dtype; in one without fractions, which has no derivative, a constant."""
        return ops.astype(self if np.dtype(dtype).kind == "f" else self.detach(), dtype=dtype)

    def __repr__(self) -> str:
        text = np.array2string(self.numpy(), separator=", ", prefix="Tensor(")
        facts = [f"dtype={self.dtype}"] if self.dtype not in (np.float64, np.int64, np.bool) else []
        facts += [f"op={self.node.op.name}"] if self.node else ["requires_grad=True"] if self._requires_grad else []
        facts += [f"name={self.name!r}"] if self.name else []
        return f"Tensor({', '.join([text, *facts])})"

    def __reduce__(self):
        """Copying and pickling keep a leaf whole; a result becomes a constant, without its graph."""
        facts = {"_requires_grad": self._requires_grad and not self.node, "name": self.name,
                 "grad": None if self.grad is None else self.grad.copy()}
        return _rebuild, (type(self), self.numpy(), facts)

    def __array__(self, dtype=None, copy=None):
        if self._requires_grad:
            raise TypeError("this would make a plain array of a Tensor that needs a gradient, and cut its graph; if "
                            "that is meant, write .numpy() or .detach()")
        return np.array(self.numpy(), dtype, copy=copy)

    def __array_ufunc__(self, ufunc, method, *inputs, **params):
        if method != "__call__" or params:
            raise TypeError(f"np.{ufunc.__name__} of a Tensor can only be called plainly, without "
                            f"{', '.join(params) or '.' + method}; instead of a += t, write a = a + t")
        return self.__array_function__(ufunc, (), inputs, {})

    def __array_function__(self, function, types, args, params):
        if function in _WITHOUT_DERIVATIVE:
            return function(*_plain(args), **{key: _plain(param) for key, param in params.items()})
        if function not in _FROM_NUMPY:
            raise TypeError(f"{_full_name(function)} is not defined for Tensors: compose it of ops that are, make it "
                            "one with @primitive, or write .numpy() to leave the graph")
        try:
            return _FROM_NUMPY[function](*args, **params)
        except TypeError as error:
            raise TypeError(f"{_full_name(function)} of a Tensor: {error}") from None


def _full_name(function: Any) -> str:
    return f"{getattr(function, '__module__', 'numpy')}.{function.__name__}"


def _owned(data: Any, dtype: Any = None) -> Any:
    """A read-only copy; of a single number, a NumPy scalar."""
    data = np.array(data, dtype)
    if data.dtype.kind not in "biufc":
        raise TypeError(f"a Tensor holds numbers; {data.dtype} is no dtype for them")
    data.setflags(write=False)
    return data[()]


def _rebuild(cls: type[Tensor], data: np.ndarray, facts: dict[str, Any]) -> Tensor:
    tensor = cls.__new__(cls)
    Tensor.__init__(tensor, data)
    for name, fact in facts.items():
        setattr(tensor, name, fact)
    return tensor


def _one_or_many(items: tuple) -> Any:
    """`reshape(2, 3)` is `reshape((2, 3))`."""
    several = isinstance(items[0], (tuple, list, np.ndarray))
    return tuple(map(operator.index, items[0])) if several else None if items[0] is None else items


def _plain(x: Any) -> Any:
    """x with an array for each Tensor in it."""
    return type(x)(map(_plain, x)) if type(x) in (list, tuple) else x._array if isinstance(x, Value) else x


Value.result_type = Tensor

# A method where there is one, since methods take their parameters by position, as NumPy's functions do.
_FROM_NUMPY = {getattr(np, name): getattr(Tensor, name, None) or getattr(ops, name) for name in (
    "abs add broadcast_to concatenate cumsum divide einsum exp expand_dims log matmul max maximum mean min minimum "
    "multiply negative power sqrt squeeze stack subtract sum swapaxes tanh var where").split()}
_FROM_NUMPY |= {
    np.amax: Tensor.max, np.amin: Tensor.min, np.square: lambda x: x * x, np.positive: lambda x: x,
    np.matrix_transpose: lambda x: x.mT, np.reshape: lambda a, shape: a.reshape(shape),
    np.transpose: lambda a, axes=None: a.transpose(axes),
    np.clip: lambda a, a_min=None, a_max=None, *, min=None, max=None: a.clip(a_min if min is None else min,
                                                                             a_max if max is None else max),
    np.tril: lambda m, k=0: ops.tril(m, k=k), np.triu: lambda m, k=0: ops.triu(m, k=k)}
_WITHOUT_DERIVATIVE = {getattr(np, name) for name in (
    "all allclose any argmax argmin argsort array_equal ceil empty_like equal floor full_like greater greater_equal "
    "isclose isfinite isinf isnan less less_equal ndim not_equal ones_like result_type rint shape sign size "
    "zeros_like").split()}
