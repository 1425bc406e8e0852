"""Floor 6. Networks: modules with parameters, from a linear layer to a GPT.

Read `module.py` first, then `layers.py`, `attention.py`, `positions.py`, `transformer.py`, and `models.py`. Parameters
have the names, the layout and the start of PyTorch's, so that weights move either way.
"""

from .attention import KVCache, MultiHeadAttention
from .layers import (
    GELU,
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    ReLU,
    RMSNorm,
    Sequential,
    Sigmoid,
    SiLU,
    Tanh,
)
from .models import GPT, EncoderDecoder
from .module import Module, Parameter
from .positions import (
    ALiBi,
    LearnedPositions,
    Rotary,
    SinusoidalPositions,
    alibi_bias,
    alibi_slopes,
    rotate,
    sinusoids,
)
from .transformer import TransformerDecoder, TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer

__all__ = [
    "GELU", "GPT", "ALiBi", "Dropout", "Embedding", "EncoderDecoder", "KVCache", "LayerNorm", "LearnedPositions",
    "Linear", "Module", "MultiHeadAttention", "Parameter", "RMSNorm", "ReLU", "Rotary", "Sequential", "SiLU", "Sigmoid",
    "SinusoidalPositions", "Tanh", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer", "alibi_bias", "alibi_slopes", "rotate", "sinusoids",
]
