"""How fast is it, next to what else there is? `python -m benchmarks` prints ratios measured in one run."""
