"""How many paths are there?

The chain rule sums over all paths from an input to the output. Write `count_paths(graph, start, end)`, which says how
many there are. `graph` is a dict. Its keys are values of a computation, numbered in the order in which they were made;
`graph[i]` is the list of the values in which value i is used, one entry for each use. So x, used twice in one product,
is `{0: [1, 1], 1: []}`, with two paths from 0 to 1.

A path follows uses, from start to end, and from a value to itself there is one, which is empty. The dict may be in any
order; a value is only used in values made after it. Forty doublings, x + x, in a row have more than a million million
paths, and a chain of 5,000 ops has one: the answer must come in both cases within a moment.
"""

from collections import defaultdict

from tinygrad_attn.learn import Write

exercise = Write(
    "count_paths",
    starter="""
from collections import defaultdict


def count_paths(graph, start, end):
    \"\"\"the number of paths from start to end\"\"\"
    ...
""",
    hints=["How many paths lead to a value, if you know how many lead to each of the values that it was made of?",
           "Each value waits until all that leads to it is known, as in the walk back. The numbers tell the order in "
           "which that is so.",
           "Begin with one path at start, and let each value give what it has to every one of its uses."])


@exercise.solution
def count_paths(graph, start, end):
    found = defaultdict(int, {start: 1})
    for i in sorted(graph):
        for j in graph[i]:
            found[j] += found[i]
    return found[end]


def doublings(n):
    """n times h = x + x"""
    return {i: [i + 1, i + 1] if i < n else [] for i in range(n + 1)}


def chain(n):
    """n times h = tanh(x)"""
    return {i: [i + 1] if i < n else [] for i in range(n + 1)}


class Counted(dict):
    """A graph that says when its uses are asked for again and again, long before the time is up."""
    asked = 0

    def __getitem__(self, i):
        self.asked += 1
        if self.asked > 50_000:
            raise RuntimeError("stopped, as graph[...] was asked for 50,000 times")
        return super().__getitem__(i)


@exercise.check("a few values", "List the paths by hand. Two uses in one op are two entries, and two paths.")
def few(rng):
    yield {0: [1], 1: []}, 0, 1
    yield {0: [1, 1], 1: []}, 0, 1
    yield {0: [1, 1, 2], 1: [2], 2: []}, 0, 2


@exercise.check("no path, and the empty one", "From a value to itself there is one path. And if start does not lead to "
                "end?")
def ends(rng):
    yield {0: []}, 0, 0
    yield {0: [2], 1: [2], 2: []}, 0, 1
    yield {0: [1], 1: [2], 2: []}, 2, 0
    yield {0: [1], 1: [2], 2: []}, 1, 1


@exercise.check("from the middle to the middle", "Only paths that begin at start count, and what comes after end does "
                "not matter.")
def middle(rng):
    yield {0: [2], 1: [2], 2: [3, 3], 3: []}, 1, 3
    yield doublings(5), 1, 3


@exercise.check("a short way and a long one", "Two ways of different lengths lead to one value. Is it handed on before "
                "the longer of them has arrived?")
def short_and_long(rng):
    yield {0: [1, 2], 1: [2], 2: [3], 3: []}, 0, 3
    yield {0: [2, 1], 1: [2], 2: [3], 3: []}, 0, 3
    yield {0: [1, 3], 1: [2], 2: [3], 3: [4], 4: []}, 0, 4


@exercise.check("a dict in any order", "In which order do you take the values? The keys tell more than the order in "
                "which the dict has them.")
def shuffled(rng):
    yield {2: [], 1: [2], 0: [1, 1]}, 0, 2
    for n in (4, 8):
        graph = {i: sorted(int(j) for j in rng.integers(i + 1, n + 1, 2)) if i < n else [] for i in range(n + 1)}
        yield {int(i): graph[int(i)] for i in rng.permutation(n + 1)}, 0, n


@exercise.check("doublings in a row, too many to walk each path", "Walking along each path takes a step for each. "
                "How often do you come to the same value, and do you start anew each time?",
                call=lambda count_paths, length: count_paths(Counted(doublings(length)), 0, length))
def many(rng):
    yield 10
    yield 40


@exercise.check("long chains", "A function that calls itself for each value of a chain comes to Python's limit. What "
                "would a loop over the values need to know?",
                call=lambda count_paths, length: count_paths(chain(length), 0, length))
def long(rng):
    yield 10
    yield 5000


@exercise.mistake("Two uses by one op are two paths: each has a share of its own. What does a set do with them?")
def each_op_once(graph, start, end):
    found = defaultdict(int, {start: 1})
    for i in sorted(graph):
        for j in set(graph[i]):
            found[j] += found[i]
    return found[end]


@exercise.mistake("That counts edges. Behind an edge there may be several paths, or none.")
def edges(graph, start, end):
    reached, count = {start}, 0
    for i in sorted(graph):
        if i in reached:
            reached |= set(graph[i])
            count += len(graph[i])
    return count


@exercise.mistake("You take the values as the dict has them. Is a value complete when its turn comes?")
def as_they_come(graph, start, end):
    found = defaultdict(int, {start: 1})
    for i in graph:
        for j in graph[i]:
            found[j] += found[i]
    return found[end]


@exercise.mistake("Each value is entered once and then never again. A second way to it is a second path, so what must "
                  "be kept of it?")
def visited_once(graph, start, end):
    return int(end in reachable(graph, start))


def reachable(graph, start):
    reached = {start}
    for i in sorted(graph):
        reached |= set(graph[i]) if i in reached else set()
    return reached


@exercise.mistake("You count how often end is reached, but go on from each value once only. If two paths meet in a "
                  "value before end, how many arrive?")
def arrivals(graph, start, end):
    return int(start == end) + sum(graph[i].count(end) for i in reachable(graph, start))


@exercise.mistake("In a small graph this is right. But you walk each path by itself, and here nobody could. What do "
                  "all the paths that meet in one value have in common from there on?")
def each_path(graph, start, end):
    return int(start == end) + sum(each_path(graph, j, end) for j in graph[start])


@exercise.mistake("That counts all paths that end there, wherever they begin. What has start to do with it?")
def from_anywhere(graph, start, end):
    used = {j for uses in graph.values() for j in uses}
    found = defaultdict(int, {i: int(i not in used) for i in graph})
    for i in sorted(graph):
        for j in graph[i]:
            found[j] += found[i]
    return found[end]


@exercise.mistake("In short graphs this is right. In a chain, each call waits for the next one: how many may wait, in "
                  "Python?")
def calls_itself(graph, start, end):
    known = {}

    def count(i):
        if i not in known:
            known[i] = 1 if i == end else sum(count(j) for j in graph[i])
        return known[i]
    return count(start)


@exercise.mistake("Values are handed on in the order in which they are first reached, by a queue or a stack. A long "
                  "way to a value may arrive after that: where does its share go?")
def as_first_reached(graph, start, end):
    found, queue = defaultdict(int, {start: 1}), [start]
    for i in queue:
        for j in graph[i]:
            found[j] += found[i]
            if j not in queue:
                queue.append(j)
    return found[end]


@exercise.mistake("You follow one way to its end before the next. A value that is met on both is handed on with what "
                  "the first one brought: what happens to the second's share?")
def one_way_first(graph, start, end):
    found, stack, seen = defaultdict(int, {start: 1}), [start], {start}
    while stack:
        i = stack.pop()
        for j in graph[i]:
            found[j] += found[i]
            if j not in seen:
                seen.add(j)
                stack.append(j)
    return found[end]
