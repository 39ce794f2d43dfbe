"""Matrix products by oneDNN are the same products, with their gradients, in every process that has the folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).resolve().parents[2] / "tools" / "onednn"

SCRIPT = """
import sys, torch, sitecustomize
taken = []
product = sitecustomize._product
sitecustomize._product = lambda *given: taken.append(1) or product(*given)
torch.manual_seed(0)
for rows, width, columns in ((70, 96, 160), (3, 4, 5)):
    for bias in (None, torch.randn(columns, requires_grad=True)):
        x, w = torch.randn(rows, width, requires_grad=True), torch.randn(columns, width, requires_grad=True)
        above = torch.randn(rows, columns)
        given = [each for each in (x, w, bias) if each is not None]
        found = torch.nn.functional.linear(x, w, bias)
        found = [found, *torch.autograd.grad(found, given, above)]
        doubles = [each.detach().double().requires_grad_() for each in given]
        exact = torch.nn.functional.linear(*doubles)
        exact = [exact, *torch.autograd.grad(exact, doubles, above.double())]
        for one, other in zip(found, exact):
            # Sums of at most 160 products of normal numbers, rounded in float32.
            torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-4)
    print(rows, len(taken))
"""


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this build of PyTorch has no oneDNN")
def test_products_and_gradients_are_those_of_float64_to_rounding():
    environment = os.environ | {"PYTHONPATH": str(FOLDER)}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    # Three products each way with large factors; of small ones MKL keeps all.
    assert said.split() == ["70", "6", "3", "6"]
