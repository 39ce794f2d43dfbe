"""The shapes in signatures are true: every documented example runs with them enforced, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = """
import doctest, importlib, pkgutil, sys
from jaxtyping import TypeCheckError, install_import_hook
with install_import_hook("tpkd", "shapecheck.checker"):
    package = importlib.import_module(sys.argv[1])
    modules = [importlib.import_module(f"{sys.argv[1]}.{m.name}") for m in pkgutil.iter_modules(package.__path__)]
tried = sum(doctest.testmod(module, raise_on_error=True).attempted for module in modules)
assert tried > 5, tried
import torch
from tpkd.geometry.split import insert_target
try:
    insert_target(torch.zeros(1, 2), torch.zeros(2), torch.tensor([0]))
except TypeCheckError:
    sys.exit(0)
sys.exit("a wrong shape went through: the signatures are not enforced")
"""


@pytest.mark.parametrize("package", ["tpkd.geometry", "tpkd.theory", "tpkd.parameter_space", "tpkd.objectives"])
def test_examples_run_with_shapes_enforced(package):
    command = [sys.executable, "-c", CHECK, package]
    result = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    assert result.returncode == 0, result.stderr[-3000:]
