"""How fast is it, next to what else there is? `python -m benchmarks` prints ratios measured in one run.

Read `rows.py` first, what is measured and what is asked of it; then the contestants, `ours.py`, `pytorch.py`,
`peers.py`, `by_hand.py` and `floor.py`; then how it is measured, `worker.py` and `measure.py`.
"""
