"""What README shows and no doctest runs: how weights move to PyTorch."""

import re
import sys
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "fixtures"))
from torch_cases import the_torch

README = Path(__file__).parents[1] / "README.md"


def test_the_gpt_of_readme_gives_the_same_numbers_in_pytorch(tmp_path, monkeypatch):
    the_torch()
    (block,) = re.findall(r"^```python\n(import .*?)^```$", README.read_text(encoding="utf-8"), re.M | re.S)
    monkeypatch.chdir(tmp_path)
    space = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")             # PyTorch's own
        exec(compile(block, "README.md", "exec"), space)
    assert space["difference"] < 1e-12
    back = space["nn"].GPT(vocab_size=65, max_len=64, d_model=96, num_heads=4, num_layers=2, rng=1)
    back.load_state_dict(space["theirs"].state_dict())          # and the way back
    np.testing.assert_array_equal(back(space["ids"]).numpy(), space["ours"](space["ids"]).numpy())
