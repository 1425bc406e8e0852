"""Floor 6.95. Learning: exercises and their grader, quizzes, the tutorials.

In a notebook, `exercises("03")` shows what is asked, `check("03-softmax", softmax)` grades, `hint("03-softmax")` helps,
and `quiz("03")` asks. In a terminal, `python -m tinygrad_attn learn` does all of it.
"""

from .exercise import Catch, Exercise, Predict, Write
from .grader import check
from .lessons import exercises, hint
from .quiz import quiz
from .report import Report

__all__ = ["Catch", "Exercise", "Predict", "Report", "Write", "check", "exercises", "hint", "quiz"]
