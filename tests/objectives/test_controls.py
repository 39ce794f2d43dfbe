"""The controls on the worked examples."""

import torch

from objectives.worked import VALUE, ZT, Y, Z, double
from tpkd.objectives import (
    create,
)


def test_worked_controls():
    """The controls stand on the same examples: their parts are printed for CE, KL and NCKD."""
    ce, kl, nckd = (
        double(values)
        for values in ([0.3423495824, 1.2873386717], [0.4016930087, 0.0811227815], [0.5321229484, 0.0992617205])
    )
    values = {
        "tpkd-no-projection": ce + nckd / 2,
        "tpkd-no-ce": nckd / 2,
        "safe-full-kl": ce + kl / 2,
        "compensation-only": ce,
    }
    for name, expected in values.items():
        found = create(name)(Z, ZT, Y, reduction="none")
        torch.testing.assert_close(found, expected, atol=2 * VALUE, rtol=0)
