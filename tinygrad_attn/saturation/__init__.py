"""A side room on floor 5. The laboratory of the thesis: why scores are divided by √d_k.

`theory.py` derives what must come out, `measure.py` measures it and calls a witness, `training.py` tells what it does
to training, and `page.py` puts all of it on one page, with a slider.
"""

from .claims import QUANTITIES
from .measure import D_K, Row, Stat, Sweep, Witness, softmax_jacobians, sweep
from .page import report
from .theory import SCALES
from .training import CONTROLS, Map, Run, Task, controls, train, training_map

__all__ = [
    "CONTROLS", "D_K", "QUANTITIES", "SCALES", "Map", "Row", "Run", "Stat", "Sweep", "Task", "Witness", "controls",
    "report", "softmax_jacobians", "sweep", "train", "training_map",
]
