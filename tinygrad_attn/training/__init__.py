"""A side room on floor 7. Networks that learn something: a loop, and the tasks that the command `train` has.

`loop.py` is the loop with its checkpoints, `sequences.py` has copy and reverse, `text.py` a GPT on real text.
"""

from .loop import Training, loss_plot
from .sequences import SequenceTask, sequence_training
from .text import Corpus, bigram_loss, declaration, gpt_loss, text_training

__all__ = ["Corpus", "SequenceTask", "Training", "bigram_loss", "declaration", "gpt_loss", "loss_plot",
           "sequence_training", "text_training"]
