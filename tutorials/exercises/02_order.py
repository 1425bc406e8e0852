"""An order without recursion

Write `topological_order(graph, root)`. `graph` is a dict from the name of each value to the list of names of its
inputs, in no particular order; a leaf has an empty list. Return a list of the names that `root` was computed from, with
`root` first, each name once, and each *after* all of its uses among them. Values that `root` does not depend on are
left out, even if they use the same inputs.

    {"x": [], "h": ["x"], "t": ["h"], "y": ["h", "t"]}, "y"   ->   ["y", "t", "h", "x"]

If several orders are right, any of them will do. There are no cycles. A chain of 5000 values must be no trouble, nor
thirty squares in a row, in which 2³⁰ paths lead from the first value to the last.
"""

import random
from collections import Counter

from tinygrad_attn.learn import Write

exercise = Write(
    "topological_order",
    starter="""
def topological_order(graph, root):
    \"\"\"graph, name -> the names of its inputs  ->  a list of names, root first, each after all its uses\"\"\"
    ...
""",
    hints=["A way without recursion: count, for each value, the uses that have not been listed yet. When may it be "
           "listed?",
           "First find which values root depends on, with a list of names still to be looked at, and count only the "
           "uses by these. A value that an op uses twice has two uses there.",
           "Then begin with root alone. Whenever a value is listed, each of its inputs has one use less to wait for."])


@exercise.solution
def topological_order(graph, root):
    uses, pending = {root: 0}, [root]
    while pending:
        for x in graph[pending.pop()]:
            if x not in uses:
                uses[x] = 0
                pending.append(x)
            uses[x] += 1
    order, ready = [], [root]
    while ready:
        name = ready.pop()
        order.append(name)
        for x in graph[name]:
            uses[x] -= 1
            if not uses[x]:
                ready.append(x)
    return order


class Watched(dict):
    """A graph that counts how often its inputs are asked for, and stops an answer that asks without end."""

    def __getitem__(self, name):
        self.asked = getattr(self, "asked", 0) + 1
        if self.asked > 50 * len(self) + 50:
            raise RuntimeError(f"{self.asked} look-ups in a graph of {len(self)} values: the same ones again and again")
        return super().__getitem__(name)

    def get(self, name, default=None):
        try:
            return self[name]
        except KeyError:
            return default


def verdict(order, graph, root):
    """What is wrong with an order, in words; "in order" if nothing is."""
    if not isinstance(order, (list, tuple)):
        return f"a {type(order).__name__}, not a list" if order is not None else None
    order, needed, pending = list(order), {root}, [root]
    while pending:
        fresh = set(graph[pending.pop()]) - needed
        needed |= fresh
        pending += fresh
    if not order or order[0] != root:
        return f"{shown(order)}: it begins with {order[0] if order else 'nothing'}, and not with {root}"
    for name, times in Counter(order).items():
        if name not in needed:
            return f"{shown(order)}: {root} does not depend on {name}"
        if times > 1:
            return f"{shown(order)}: {name} is there {times} times"
    if len(order) < len(needed):
        return f"{shown(order)}: {min(needed - set(order))} is missing"
    place = {name: i for i, name in enumerate(order)}
    for name in order:
        for x in graph[name]:
            if place[x] < place[name]:
                return f"{shown(order)}: {x} comes before {name}, which uses it"
    return "in order"


def shown(order):
    return str(order) if len(order) <= 12 else f"a list of {len(order)} names"


def told(topological_order, graph, root):
    return verdict(topological_order(Watched(graph), root), graph, root)


def in_a_row(topological_order, length, uses):
    """The same of `length` values in a row, each used `uses` times by the next."""
    graph = {f"v{i}": [f"v{i - 1}"] * uses if i else [] for i in range(length)}
    return told(topological_order, shuffled(graph, 0), f"v{length - 1}")


def right(*given):
    return "in order"


def shuffled(graph, seed):
    names = list(graph)
    random.Random(seed).shuffle(names)
    return {name: graph[name] for name in names}


@exercise.check("small graphs", "Draw it, with an arrow from each input to its use. Which values have no use left to "
                "wait for?", call=told, expected=right)
def few(rng):
    yield {"x": []}, "x"
    yield {"x": [], "y": ["x"]}, "y"
    yield {"y": ["t", "h"], "h": ["x"], "x": [], "t": ["h"]}, "y"
    yield {"x": [], "h": ["x"], "t": ["h"], "y": ["h", "t"]}, "y"
    yield {"h": ["w", "x"], "y": ["p", "x"], "x": [], "p": ["h", "t"], "w": [], "t": ["h"]}, "y"


@exercise.check("a value used twice by one op", "In h · h, the list of inputs has the same name twice.", call=told,
                expected=right)
def twice(rng):
    yield {"x": [], "y": ["x", "x"]}, "y"
    yield {"y": ["p", "h"], "p": ["h", "h"], "h": ["x", "x"], "x": []}, "y"


@exercise.check("values that root does not depend on", "The graph may have uses of x that have nothing to do with "
                "root. Do they have to be waited for?", call=told, expected=right)
def others(rng):
    yield {"x": [], "y": ["x"], "z": ["x"]}, "y"
    yield {"x": [], "h": ["x"], "y": ["h", "x"], "z": ["h", "y"], "v": []}, "y"


@exercise.check("random graphs", "Each value must come after all of its uses, not only after the nearest.", call=told,
                expected=right)
def random_graphs(rng):
    for n in (5, 8, 12, 40):
        graph = {f"v{i}": [f"v{j}" for j in rng.integers(0, i, size=int(rng.integers(1, 4)))] if i else []
                 for i in range(n)}
        yield shuffled(graph, n), f"v{n - 1}"


@exercise.check("thirty squares in a row", "Each value must be looked at once, however many paths lead to it.",
                call=in_a_row, expected=right)
def squares(rng):
    yield 31, 2


@exercise.check("a chain of 5000", "A function that calls itself for every value calls itself 5000 times here.",
                call=in_a_row, expected=right)
def chain(rng):
    yield 5000, 1


@exercise.mistake("Everything is right that is not too deep. A function that calls itself needs room for each call: "
                  "keep a list of what is still to be done instead.")
def recursive(graph, root):
    done, seen = [], set()

    def visit(name):
        if name not in seen:
            seen.add(name)
            for x in graph[name]:
                visit(x)
            done.append(name)
    visit(root)
    return done[::-1]


@exercise.mistake("These are the nearest to root first. A value may be near by one path and far by another: which of "
                  "them must it wait for?")
def nearest_first(graph, root):
    order, seen = [root], {root}
    for name in order:
        order += [x for x in dict.fromkeys(graph[name]) if x not in seen]
        seen.update(graph[name])
    return order


@exercise.mistake("Here a value is listed as soon as it is reached, and then one path is followed to its end. Had all "
                  "its uses been listed by then?")
def as_it_is_reached(graph, root):
    order, pending = {}, [root]
    while pending:
        name = pending.pop()
        if name not in order:
            order[name] = True
            pending += graph[name][::-1]
    return list(order)


@exercise.mistake("Each value stands after its inputs, so that a walk forwards could use the list. In which direction "
                  "does the walk back go?")
def forwards(graph, root):
    return topological_order(graph, root)[::-1]


@exercise.mistake("A value of several uses is listed, and its inputs again, at each of them. How do you know that it "
                  "has been seen?")
def without_seen(graph, root):
    order = [root]
    for name in order:
        order += graph[name]
    return order


@exercise.mistake("The uses by all values of the graph are counted, also by those that root does not depend on. They "
                  "are never listed, and so are waited for in vain.")
def counts_all_uses(graph, root):
    uses = dict.fromkeys(graph, 0)
    for inputs in graph.values():
        for x in inputs:
            uses[x] += 1
    order, ready = [], [root]
    while ready:
        order.append(ready.pop())
        for x in graph[order[-1]]:
            uses[x] -= 1
            if not uses[x]:
                ready.append(x)
    return order


@exercise.mistake("That is the order of the dict, backwards. Is it sure that a value stands there after its inputs?")
def order_of_the_dict(graph, root):
    needed, pending = {root}, [root]
    while pending:
        for x in graph[pending.pop()]:
            if x not in needed:
                needed.add(x)
                pending.append(x)
    return [name for name in reversed(list(graph)) if name in needed]


@exercise.mistake("The leaves come first here, and root last. Where does the walk back begin?")
def forwards_by_a_stack(graph, root):
    done, seen, pending = [], set(), [(root, False)]
    while pending:
        name, inputs_done = pending.pop()
        if inputs_done:
            done.append(name)
        elif name not in seen:
            seen.add(name)
            pending.append((name, True))
            pending += [(x, False) for x in graph[name]]
    return done


@exercise.mistake("Each name is listed when it is first met, and then one path is followed down. Which of its uses may "
                  "still be waiting at that moment?")
def when_first_met(graph, root):
    order, pending = {}, [root]
    while pending:
        name = pending.pop()
        if name not in order:
            order[name] = True
            pending += graph[name]
    return list(order)
