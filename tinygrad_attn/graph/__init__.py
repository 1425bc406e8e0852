"""A side room on floor 3. Pictures of computation graphs.

`trace.py` makes plain data of a recorded graph; `dot.py` turns that into DOT text, and DOT into pictures.
"""

from .dot import Graph, draw
from .trace import Edge, Trace, Vertex, trace

__all__ = ["Edge", "Graph", "Trace", "Vertex", "draw", "trace"]
