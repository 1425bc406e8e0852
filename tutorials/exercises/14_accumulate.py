"""Does every use send its share?

A program computes with arrays of one shape. Its values are numbered: first the inputs, then one for each step, in
order. A step is `(op, i, j)`, where op is "add", "sub" or "mul", and i and j are the numbers of earlier values. So with
two inputs, `[("mul", 0, 1), ("add", 2, 0)]` computes x·y, which is value 2, and then x·y + x.

Write `check_gradients(gradients)`, which gets an implementation of `gradients(program, inputs)`. That returns a list
with the gradient of L with respect to each input, where L is the sum of all elements of the last value. An input that
is not used has a gradient of zeros. Calling it changes nothing: not its arguments, and not what a later call returns.
Every mutant knows the derivatives of the three ops; what is wrong is how shares are kept, added, or passed on. Your
check must accept every right implementation.
"""

import numpy as np

from tinygrad_attn.learn import Catch

exercise = Catch(
    "check_gradients",
    starter="""
import numpy as np


def check_gradients(gradients):
    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    dx, dy = gradients([("mul", 0, 1)], [x, y])
    assert np.allclose(dx, y)
    assert np.allclose(dy, x)
""",
    hints=["Which value has two uses here? Draw the graph of the smallest program in which one has, and then of one "
           "in which a value that is no input has.",
           "Two uses can be two steps, or the two arguments of one step, and can be the last step but one, or far "
           "apart. What comes to a value before all its shares have come must wait.",
           "Evaluate the program yourself, move one element of one input, and compare with the difference: a random "
           "program of ten steps has all kinds of uses in it."],
    too_strict="Something right was rejected. Does your check add up all uses of a value, and does it allow for "
               "rounding? The result is a list, with zeros for an input that is not used.")


def run(program, inputs):
    values = list(inputs)
    for op, i, j in program:
        x, y = values[i], values[j]
        values.append(x + y if op == "add" else x - y if op == "sub" else x * y)
    return values


def shares(op, g, x, y):
    return (g, g) if op == "add" else (g, -g) if op == "sub" else (g * y, g * x)


@exercise.sound
def sound(program, inputs):
    """from the last step to the first, each adding its two shares"""
    values = run(program, inputs)
    grads = [np.zeros_like(value) for value in values]
    grads[-1] = np.ones_like(values[-1])
    for place in range(len(values) - 1, len(inputs) - 1, -1):
        op, i, j = program[place - len(inputs)]
        to_i, to_j = shares(op, grads[place], values[i], values[j])
        grads[i] = grads[i] + to_i
        grads[j] = grads[j] + to_j
    return grads[:len(inputs)]


@exercise.sound
def asked_from_the_front(program, inputs):
    """each value asks all its uses for their shares"""
    values = run(program, inputs)
    known = {len(values) - 1: np.ones_like(values[-1])}
    for place in range(len(values) - 2, -1, -1):
        known[place] = np.zeros_like(values[place])
        for n, (op, i, j) in enumerate(program, len(inputs)):
            to_i, to_j = shares(op, known.get(n), values[i], values[j]) if n > place else (0, 0)
            known[place] = known[place] + (to_i if i == place else 0) + (to_j if j == place else 0)
    return [known[n] for n in range(len(inputs))]


@exercise.sound
def forwards(program, inputs):
    """derivatives carried forwards, one input at a time"""
    values, found = run(program, inputs), []
    for n in range(len(inputs)):
        moved = [np.ones_like(x) if m == n else np.zeros_like(x) for m, x in enumerate(inputs)]
        for op, i, j in program:
            x, y, dx, dy = values[i], values[j], moved[i], moved[j]
            moved.append(dx + dy if op == "add" else dx - dy if op == "sub" else dx * y + x * dy)
        found.append(moved[-1])
    return found


def walked(program, inputs, receive, seed=None):
    values = run(program, inputs)
    grads = [np.zeros_like(value) for value in values]
    grads[-1] = np.ones_like(values[-1]) if seed is None else seed
    for place in range(len(values) - 1, len(inputs) - 1, -1):
        op, i, j = program[place - len(inputs)]
        receive(grads, place, (i, j), shares(op, grads[place], values[i], values[j]))
    return grads[:len(inputs)]


@exercise.solution
def check_gradients(gradients):
    def loss(program, inputs):
        values = list(inputs)
        for op, i, j in program:
            values.append({"add": np.add, "sub": np.subtract, "mul": np.multiply}[op](values[i], values[j]))
        return values[-1].sum()

    rng = np.random.default_rng(0)
    for steps in (1, 2, 3, 5, 8) * 5:
        program = [(str(rng.choice(["add", "sub", "mul"])), int(rng.integers(n)), int(rng.integers(n)))
                   for n in range(3, 3 + steps)]
        inputs = [rng.uniform(-1, 1, size=2) for _ in range(3)]
        for _ in range(2):
            found = gradients(program, [x.copy() for x in inputs])
            assert len(found) == 3
            for n, i in np.ndindex(3, 2):
                ahead, behind = [x.copy() for x in inputs], [x.copy() for x in inputs]
                ahead[n][i] += 1e-6
                behind[n][i] -= 1e-6
                slope = (loss(program, ahead) - loss(program, behind)) / 2e-6
                assert abs(found[n][i] - slope) < 1e-5 * max(1, abs(slope))


@exercise.mutant("In one, the share that comes last replaces those before it. Which of your values has two uses?")
def overwritten(program, inputs):
    def receive(grads, place, to, sent):
        for n, share in zip(to, sent):
            grads[n] = share
    return walked(program, inputs, receive)


@exercise.mutant("In one, a step that uses a value twice sends only one of its two shares. In which program are i and "
                 "j the same?")
def once_for_each_step(program, inputs):
    def receive(grads, place, to, sent):
        for n, share in dict(zip(to, sent)).items():
            grads[n] = grads[n] + share
    return walked(program, inputs, receive)


@exercise.mutant("In one, shares are added for inputs, and replaced for results of steps. Is there a result in your "
                 "program that two steps use?")
def results_overwritten(program, inputs):
    def receive(grads, place, to, sent):
        for n, share in zip(to, sent):
            grads[n] = grads[n] + share if n < len(inputs) else share
    return walked(program, inputs, receive)


@exercise.mutant("One passes on all that a value has so far, each time that a share comes to it. Follow the first "
                 "share to a result with two uses: how often is it passed on?")
def passed_on_again(program, inputs):
    values = run(program, inputs)
    grads = [np.zeros_like(value) for value in values]

    def send(n, share):
        grads[n] = grads[n] + share
        if n >= len(inputs):
            op, i, j = program[n - len(inputs)]
            to_i, to_j = shares(op, grads[n], values[i], values[j])
            send(i, to_i)
            send(j, to_j)
    send(len(values) - 1, np.ones_like(values[-1]))
    return grads[:len(inputs)]


@exercise.mutant("One passes on a value's gradient when its first share has come, and never again. In which graph does "
                 "a second one come later, along a longer way?")
def first_come(program, inputs):
    values = run(program, inputs)
    grads = [np.zeros_like(value) for value in values]
    gone = set()

    def send(n, share):
        grads[n] = grads[n] + share
        if n >= len(inputs) and n not in gone:
            gone.add(n)
            op, i, j = program[n - len(inputs)]
            to_i, to_j = shares(op, grads[n], values[i], values[j])
            send(i, to_i)
            send(j, to_j)
    send(len(values) - 1, np.ones_like(values[-1]))
    return grads[:len(inputs)]


@exercise.mutant("In one, \"add\" gives the same array to both of its inputs, and what one of them gets later is added "
                 "in place. In which program would the other one notice?")
def in_one_array(program, inputs):
    def receive(grads, place, to, sent):
        for n, share in zip(to, sent):
            if grads[n] is None:
                grads[n] = share
            else:
                grads[n] += share
    values = run(program, inputs)
    grads = [None for _ in values]
    grads[-1] = np.ones_like(values[-1])
    for place in range(len(values) - 1, len(inputs) - 1, -1):
        op, i, j = program[place - len(inputs)]
        if grads[place] is not None:
            receive(grads, place, (i, j), shares(op, grads[place], values[i], values[j]))
    return [np.zeros_like(x) if g is None else g for g, x in zip(grads, inputs)]


KEPT = []


@exercise.mutant("One keeps its gradients with the program, and adds to them when it is called again. How often do you "
                 "call it with the same program?")
def kept_with_the_program(program, inputs):
    found = sound(program, inputs)
    for other, before in KEPT:
        if other is program:
            before[:] = [a + b for a, b in zip(before, found)]
            return list(before)
    KEPT.append((program, found))
    return list(found)


@exercise.mutant("One leaves out the inputs that are not used, so that its list is too short. What does `zip` do with "
                 "lists of unequal length?")
def only_used(program, inputs):
    used = {n for _, i, j in program for n in (i, j)}
    return [grad for n, grad in enumerate(sound(program, inputs)) if n in used]


@exercise.mistake("In your program each value has one use, so that there is nothing to add. What is the smallest in "
                  "which one has two?")
def one_use(gradients):
    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    dx, dy = gradients([("mul", 0, 1)], [x, y])
    assert np.allclose(dx, y)
    assert np.allclose(dy, x)


@exercise.mistake("Your input has two uses, in two steps. Can one step use a value twice, and can a value with two "
                  "uses be the result of a step?")
def two_steps(gradients):
    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    dx, dy = gradients([("mul", 0, 1), ("add", 2, 0)], [x, y])
    assert np.allclose(dx, y + 1)
    assert np.allclose(dy, x)


@exercise.mistake("Your input has several uses, and none of your results has: an input passes nothing on. What if the "
                  "value with two uses has a history?")
def inputs_used_twice(gradients):
    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    dx, dy = gradients([("mul", 0, 0), ("mul", 0, 1), ("add", 2, 3)], [x, y])
    assert np.allclose(dx, 2 * x + y)
    assert np.allclose(dy, x)


@exercise.mistake("A result has two uses, and every input has one or more. What if two values share what came to them, "
                  "if an input has no use, or if it is asked again?")
def one_diamond(gradients):
    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    dx, dy = gradients([("mul", 0, 1), ("mul", 2, 2), ("add", 3, 2)], [x, y])
    assert np.allclose(dx, (2 * x * y + 1) * y)
    assert np.allclose(dy, (2 * x * y + 1) * x)


@exercise.mistake("Your random programs have all kinds of uses. Each is asked for its gradients once: what could a "
                  "second time tell?")
def asked_once(gradients):
    rng = np.random.default_rng(0)
    for steps in (1, 2, 3, 5, 8) * 5:
        program = [(str(rng.choice(["add", "sub", "mul"])), int(rng.integers(n)), int(rng.integers(n)))
                   for n in range(3, 3 + steps)]
        inputs = [rng.uniform(-1, 1, size=2) for _ in range(3)]
        found = gradients(program, inputs)
        assert len(found) == 3
        assert np.allclose(found, sound(program, inputs))
