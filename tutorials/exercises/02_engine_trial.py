"""Put an engine on trial

Write `check_engine(Value)`, which gets a class like that of tutorial 02:

    x, w = Value(2.0), Value(0.5)       # leaves, whose .grad is 0 at first
    y = (x * w + x).tanh()              # +, * and tanh of Values alone; y.data is the number
    y.backward()                        # adds ∂y/∂x to x.grad, ∂y/∂w to w.grad

It raises an AssertionError, by an `assert`, if the engine is wrong, and accepts every right one. `backward()` may be
called several times, of one result or of several: each call adds once more to the .grad of the leaves. What .grad a
result has, such as y, is left open. There are eight mutants. All compute y.data as they should, and each has one fault
on the way back.
"""

import heapq
import itertools
import math

from tinygrad_attn.learn import Catch

exercise = Catch(
    "check_engine",
    starter="""
import math


def check_engine(Value):
    a, b = Value(1.0), Value(1.0)
    y = a * b
    y.backward()
    assert math.isclose(a.grad, 1.0)
    assert math.isclose(b.grad, 1.0)
""",
    hints=["At special numbers faults hide: at 1, swapped factors look right. And an expression in which nothing is "
           "used twice shows no fault of adding up.",
           "Write several small expressions: different factors, tanh, a value times itself, a result with a near and a "
           "far use, two calls of backward(). For each, find the right gradient by hand or by finite differences."],
    too_strict="A right engine was rejected. Are your expected gradients right? Does your check look at something "
               "that the statement leaves open?")


class Engine:
    """the tutorial's, with a list of what is still to be done instead of recursion"""

    def __init__(self, data, inputs=(), slopes=()):
        self.data, self.inputs, self.slopes, self.grad = data, inputs, slopes, 0.0

    def __add__(self, other):
        return type(self)(self.data + other.data, (self, other), (1.0, 1.0))

    def __mul__(self, other):
        return type(self)(self.data * other.data, (self, other), (other.data, self.data))

    def tanh(self):
        t = math.tanh(self.data)
        return type(self)(t, (self,), (1 - t * t,))

    def order(self):
        done, seen, pending = [], set(), [(self, False)]
        while pending:
            value, ready = pending.pop()
            if ready:
                done.append(value)
            elif value not in seen:
                seen.add(value)
                pending.append((value, True))
                pending += [(x, False) for x in value.inputs]
        return done[::-1]

    def shares(self):
        return zip(self.inputs, self.slopes)

    def walk(self):
        found = dict.fromkeys(self.order(), 0.0)
        found[self] = 1.0
        for value in list(found):
            for x, slope in value.shares():
                found[x] += found[value] * slope
        return found

    def backward(self):
        for value, gradient in self.walk().items():
            if not value.inputs:
                value.grad += gradient


exercise.sound(Engine)


@exercise.sound
class Ticking:
    """values are numbered as they are made, the newest goes first, and rules are functions; .grad of results is set"""

    tick = itertools.count()

    def __init__(self, data, inputs=(), rule=None):
        self.data, self.inputs, self.rule, self.grad, self.number = data, inputs, rule, 0.0, next(Ticking.tick)

    def __add__(self, other):
        return Ticking(self.data + other.data, (self, other), lambda g: (g, g))

    def __mul__(self, other):
        return Ticking(self.data * other.data, (self, other), lambda g: (other.data * g, self.data * g))

    def tanh(self):
        t = math.tanh(self.data)
        return Ticking(t, (self,), lambda g: (g * (1 + t) * (1 - t),))

    def backward(self):
        found, heap = {self: 1.0}, [(-self.number, self)]
        while heap:
            value = heapq.heappop(heap)[1]
            if not value.inputs:
                value.grad += found[value]
                continue
            value.grad = found[value]
            for x, g in zip(value.inputs, value.rule(found[value])):
                if x not in found:
                    heapq.heappush(heap, (-x.number, x))
                found[x] = found.get(x, 0.0) + g


@exercise.solution
def check_engine(Value):
    x, w = Value(2.0), Value(0.5)
    h = w * x
    t = math.tanh(1.0)
    y = h * h.tanh() + x
    at_h = t + 1 - t * t
    for times in (1, 2):
        y.backward()
        assert math.isclose(x.grad, times * (0.5 * at_h + 1))
        assert math.isclose(w.grad, times * 2 * at_h)
    z = Value(3.0)
    (z * z).backward()
    assert math.isclose(z.grad, 6.0)


@exercise.mutant("One swaps the slopes of a product. Do your factors differ?")
class Swapped(Engine):
    def __mul__(self, other):
        return type(self)(self.data * other.data, (self, other), (self.data, other.data))


@exercise.mutant("One has a wrong slope of tanh. Is there a tanh in your check, of something that is not 0?")
class WrongTanh(Engine):
    def tanh(self):
        t = math.tanh(self.data)
        return type(self)(t, (self,), (1 - t,))


@exercise.mutant("One writes `=` where `+=` should be, so that the last share is all there is. Is a value used more "
                 "than once?")
class Assigns(Engine):
    def walk(self):
        found = dict.fromkeys(self.order(), 0.0)
        found[self] = 1.0
        for value in list(found):
            for x, slope in value.shares():
                found[x] = found[value] * slope
        return found


@exercise.mutant("One takes the inputs of an op as a set. Which products have a set of inputs with one element?")
class InputsAsASet(Engine):
    def shares(self):
        return dict(zip(self.inputs, self.slopes)).items()


@exercise.mutant("One visits the values nearest to y first. You need a *result* with two uses, a near one and a far "
                 "one, the near one written first.")
class NearestFirst(Engine):
    def order(self):
        order = [self]
        for value in order:
            order += [x for x in dict.fromkeys(value.inputs) if x not in order]
        return order


@exercise.mutant("One goes on from a value at each share that comes, and sends the sum so far, also what it has sent "
                 "before. A leaf with two uses does not show it.")
class SendsAgain(Engine):
    def walk(self):
        found = dict.fromkeys(self.order(), 0.0)
        found[self] = 1.0
        pending = [self]
        while pending:
            value = pending.pop()
            for x, slope in value.shares():
                found[x] += found[value] * slope
                pending += [x] if x.inputs else []
        return found


@exercise.mutant("One keeps the gradients of results, and counts them again in the next walk. What do two calls of "
                 "backward() have to leave in a leaf?")
class Stale(Engine):
    def walk(self):
        order = self.order()
        for value in order:
            value.kept = getattr(value, "kept", 0.0) if value.inputs else 0.0
        self.kept = 1.0
        for value in order:
            for x, slope in value.shares():
                x.kept += value.kept * slope
        return {value: value.kept for value in order}


@exercise.mutant("One begins anew at each call of backward(), and forgets what was in the .grad of the leaves.")
class Forgets(Engine):
    def backward(self):
        for value, gradient in self.walk().items():
            if not value.inputs:
                value.grad = gradient


@exercise.mistake("At 1 and 1 both factors are the same, and so are the two slopes. Which numbers would show a "
                  "difference?")
def all_ones(Value):
    a, b = Value(1.0), Value(1.0)
    (a * b + a).backward()
    assert math.isclose(a.grad, 2.0)
    assert math.isclose(b.grad, 1.0)


@exercise.mistake("This looks at the way forward alone, where no mutant has a fault.")
def only_data(Value):
    x, w = Value(2.0), Value(0.5)
    assert math.isclose((x * w + x).tanh().data, math.tanh(3.0))
    assert math.isclose((x * x).tanh().data, math.tanh(4.0))


@exercise.mistake("Every value in this check is used once. The faults of adding up begin with the second use.")
def each_once(Value):
    a, b, c = Value(2.0), Value(0.5), Value(0.25)
    ((a * b).tanh() + c).backward()
    slope = 1 - math.tanh(1.0) ** 2
    assert math.isclose(a.grad, 0.5 * slope)
    assert math.isclose(b.grad, 2.0 * slope)
    assert math.isclose(c.grad, 1.0)


@exercise.mistake("The statement leaves open what .grad a result has. One right engine stores something there, "
                  "another does not.")
def looks_at_results(Value):
    x, w = Value(2.0), Value(0.5)
    h = w * x
    (h * h.tanh()).backward()
    slope = math.tanh(1.0) + 1 - math.tanh(1.0) ** 2
    assert math.isclose(h.grad, slope)
    assert math.isclose(x.grad, 0.5 * slope)


@exercise.mistake("You expect two calls of backward() to leave what one leaves. The statement says what each call "
                  "does.")
def expects_no_adding(Value):
    x, w = Value(2.0), Value(0.5)
    y = x * w
    y.backward()
    y.backward()
    assert math.isclose(x.grad, 0.5)


@exercise.mistake("A right gradient and a finite difference agree in some ten digits, and not in all. Compare within a "
                  "tolerance, `math.isclose(a, b, rel_tol=1e-6)`.")
def to_the_last_digit(Value):
    x = Value(0.5)
    x.tanh().backward()
    assert x.grad == (math.tanh(0.5 + 1e-5) - math.tanh(0.5 - 1e-5)) / 2e-5


@exercise.mistake("The expression of the tutorial is a good one, but no op in it uses one value twice, and your check "
                  "calls backward() only once.")
def the_expression_once(Value):
    x, w = Value(2.0), Value(0.5)
    h = w * x
    (h * h.tanh() + x).backward()
    slope = math.tanh(1.0) + 1 - math.tanh(1.0) ** 2
    assert math.isclose(x.grad, 0.5 * slope + 1)
    assert math.isclose(w.grad, 2.0 * slope)


@exercise.mistake("Only leaves are used twice in your check, and no walk goes on from a leaf. Let a result have two "
                  "uses, one of them by way of another op.")
def only_leaves_twice(Value):
    x, w = Value(2.0), Value(0.5)
    y = (x * x * w + x).tanh()
    slope = 1 - math.tanh(4.0) ** 2
    for times in (1, 2):
        y.backward()
        assert math.isclose(x.grad, times * 3.0 * slope)
        assert math.isclose(w.grad, times * 4.0 * slope)


@exercise.mistake("backward() is called once on each result. What if it is called again on the same one?")
def one_call_each(Value):
    x, w = Value(2.0), Value(0.5)
    h = w * x
    (h * h.tanh() + x).backward()
    slope = math.tanh(1.0) + 1 - math.tanh(1.0) ** 2
    assert math.isclose(x.grad, 0.5 * slope + 1)
    (w * w).backward()
    assert math.isclose(w.grad, 2.0 * slope + 1.0)
