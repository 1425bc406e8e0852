"""The house: floors that import downwards only, a core small enough to read in an evening, and a light import."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tinygrad_attn

PACKAGE = Path(tinygrad_attn.__file__).parent
FLOORS = {"errors": 0, "engine": 1, "ops": 2, "tensor": 3, "attention": 4, "functional": 5,
          "buffers": 0.5, "threads": 0.5, "kernels": 0.6, "blocked": 0.7, "fused": 3.5, "grouped": 4.5,
          "losses": 4.5, "flat": 4.3, "optimizer": 4.4, "optim": 4.5, "serialize": 6.5,
          "nn.module": 6.0, "nn.layers": 6.1, "nn.positions": 6.2, "nn.attention": 6.3, "nn.transformer": 6.4,
          "nn.models": 6.5, "nn": 6.6,
          "languages": 0.4, "plots": 0.5, "anomaly": 1.5, "scope": 1.5, "files": 0.5, "pages": 0.5, "derivatives": 3.4,
          "differences": 3.5, "comparison": 3.6, "suspects": 3.65, "gradcheck": 3.7,
          "graph": 3.9, "graph.formulas": 3.5, "graph.trace": 3.55, "graph.fold": 3.6, "graph.labels": 3.6,
          "graph.words": 3.5, "graph.outline": 3.65, "graph.dot": 3.65, "graph.render": 3.7, "graph.film": 3.65,
          "graph.page": 3.7, "graph.picture": 3.8,
          "saturation": 5.5, "saturation.theory": 5.1, "saturation.words": 5.1, "saturation.claims": 5.15,
          "saturation.panels": 5.15, "saturation.measure": 5.2, "saturation.training": 5.3, "saturation.page": 5.4,
          "examples": 6.7, "training.loop": 6.7, "training.sequences": 6.8, "training.text": 6.8, "training": 6.9,
          "learn.record": 6.5, "learn.prose": 6.55, "learn.terminal": 6.6, "learn.isolation": 6.6, "learn.imports": 6.6,
          "learn.values": 6.6,
          "learn.exercise": 6.7, "learn.report": 6.75, "learn.grader": 6.8, "learn.quiz": 6.92, "learn.lessons": 6.9,
          "learn": 6.95, "learn_command": 7.5,
          "site": 7.0, "site.serve": 7.1, "site.catalogues": 7.1, "site.reference": 7.1, "site.executed": 7.2,
          "site.extension": 7.2,
          "site.sources": 7.3, "site.build": 7.4, "site_command": 7.5,
          "progress": 0.5, "": 7, "draw_command": 7.5, "train_command": 7.5, "cli": 8, "__main__": 9}
CORE = ("errors", "engine", "ops", "tensor", "attention", "functional")


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path for path in PACKAGE.rglob("*.py")}


def imports(name: str) -> list[tuple[str, bool]]:
    """What a module imports of its own package, and whether at its top."""
    tree, parts = ast.parse(SOURCES[name].read_text()), [part for part in name.split(".") if part]
    package = parts if SOURCES[name].name == "__init__.py" else parts[:-1]
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[:len(package) - node.level + 1] + (node.module.split(".") if node.module else [])
            for alias in node.names:
                whole = ".".join([*base, alias.name])
                found.append((whole if whole in SOURCES else ".".join(base), node.col_offset == 0))
        if isinstance(node, ast.ImportFrom) and not node.level and node.module.startswith("tinygrad_attn"):
            pytest.fail(f"{name}: import the package by its floors, relatively")
    return found


def test_every_module_has_its_floor():
    assert set(SOURCES) == set(FLOORS)


@pytest.mark.parametrize("name", sorted(FLOORS))
def test_imports_point_downwards_and_stand_at_the_top(name):
    for target, at_top in imports(name):
        assert at_top, f"{name} imports {target} inside a function"
        if (name, target) != ("cli", ""):     # for the version
            assert FLOORS[target] < FLOORS[name], f"{name}, on {FLOORS[name]}, imports {target}, on {FLOORS[target]}"


def test_the_core_stays_within_its_lines():
    """Blank lines are free, so that nobody saves by crowding the page."""
    assert sum(1 for name in CORE for line in SOURCES[name].read_text().splitlines() if line.strip()) <= 1250


def test_importing_loads_numpy_alone():
    code = ("import sys, numpy; before = set(sys.modules); import tinygrad_attn; "
            "new = {name.split('.')[0] for name in set(sys.modules) - before}; "
            "print(sorted(new - {'tinygrad_attn', 'numpy'} - sys.stdlib_module_names))")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (run.stdout.strip(), run.stderr) == ("[]", "")


def test_public_names_are_declared_and_exist_and_have_docstrings():
    assert sorted(tinygrad_attn.__all__) == list(tinygrad_attn.__all__)
    for name in tinygrad_attn.__all__:
        assert getattr(tinygrad_attn, name).__doc__, name


def test_every_module_says_what_it_is():
    for name, path in SOURCES.items():
        assert ast.get_docstring(ast.parse(path.read_text())), name
