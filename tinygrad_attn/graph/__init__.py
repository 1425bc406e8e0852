"""A side room on floor 3. Pictures of computation graphs.

`trace.py` makes plain data of a recorded graph, `fold.py` less of it, and the rest shows it: `outline.py` as text,
`dot.py` as DOT, `render.py` as a picture made of that, and `page.py` as a film of the backward pass.
"""

from ..scope import scope
from .fold import fold
from .picture import Graph, compare, draw
from .trace import Box, Edge, Trace, Vertex, trace

__all__ = ["Box", "Edge", "Graph", "Trace", "Vertex", "compare", "draw", "fold", "scope", "trace"]
