"""Small networks for the tests, and the dense Jacobian that the package never forms."""

import numpy as np
import scipy.linalg
import torch
from torch import nn

import oracles


def tanh_network(width, num_classes, seed, hidden=16, dtype=torch.float64):
    """A smooth network of two layers."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, num_classes)).to(dtype)


def busy_network(num_classes, seed=0, dtype=torch.float64):
    """Convolution, batch norm and dropout: everything whose state a careless caller would change."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(4 * 9, num_classes)
    ).to(dtype)


class PrescribedJacobian(nn.Module):
    """Logits that are affine in the parameters, so that any Jacobian and its exact curvature can be chosen.

    Inputs are row numbers; logits are `base + matrix @ theta`, `matrix` of shape (N * K, P).
    """

    def __init__(self, base, matrix):
        super().__init__()
        self.register_buffer("base", base)
        self.register_buffer("matrix", matrix)
        self.theta = nn.Parameter(torch.zeros(matrix.shape[1], dtype=matrix.dtype))

    def forward(self, rows):
        return (self.base + (self.matrix @ self.theta).view_as(self.base))[rows]


def example(num_examples, num_classes, seed, spread=2.0):
    """Inputs, teacher and labels for a network of width 5."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(num_examples, 5, generator=generator, dtype=torch.float64)
    teacher = spread * torch.randn(num_examples, num_classes, generator=generator, dtype=torch.float64)
    return inputs, teacher, torch.randint(num_classes, (num_examples,), generator=generator)


def dense_jacobian(model, *inputs):
    """The Jacobian (N, K, P) of eval-mode logits over the trainable parameters, one output at a time."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    flags = [module.training for module in model.modules()]
    model.eval()
    logits = model(*inputs)
    rows = []
    for output in logits.flatten():
        gradients = torch.autograd.grad(output, parameters, retain_graph=True, allow_unused=True)
        pieces = [
            torch.zeros_like(p) if g is None else g.to_dense() for p, g in zip(parameters, gradients, strict=True)
        ]
        rows.append(torch.cat([piece.flatten() for piece in pieces]))
    for module, flag in zip(model.modules(), flags, strict=True):
        module.training = flag
    return logits.detach().double().numpy(), torch.stack(rows).view(*logits.shape, -1).double().numpy()


def stacked_signals(logits, teacher, labels, beta=0.5):
    """U, R, W, V of the paper as flat vectors with 1 / sqrt(N), from the plain-NumPy directions."""
    rows = [
        oracles.directions(z, t, y, beta)
        for z, t, y in zip(logits, teacher.double().numpy(), labels.tolist(), strict=True)
    ]
    root = np.sqrt(len(rows))
    stack = {name: np.concatenate([row[name] for row in rows]) / root for name in rows[0] if name != "compensation"}
    return {
        "U": stack["conditional"],
        "R": stack["pure_conditional"],
        "W": 4 * stack["label"] + stack["conditional"],
        "V": stack["update"],
        "h": stack["label"],
    }


def dense_pair(jacobian, first, second, weight):
    """Every measured number of a pair from the full kernel G = J J^T, with no orthonormal basis.

    The extreme stretches are the generalised eigenvalues of (S^T G S, S^T S) for S = [first, second].
    """
    num_examples = len(jacobian)
    J = jacobian.reshape(-1, jacobian.shape[-1]) / np.sqrt(num_examples)
    S = np.stack([first / np.linalg.norm(first), second / np.linalg.norm(second)], axis=1)
    G = J @ J.T
    cosine = S[:, 0] @ S[:, 1]
    dependent = 1 - cosine < 1e-14
    spectrum = [S[:, 0] @ G @ S[:, 0]] if dependent else scipy.linalg.eigh(S.T @ G @ S, S.T @ S, eigvals_only=True)
    smallest, largest = spectrum[0], spectrum[-1]
    return {
        "min_stretch": smallest,
        "max_stretch": largest,
        "distortion_ratio": largest / smallest,
        "cosine": cosine,
        "measured_limit": np.inf if dependent else (1 + cosine) / (1 - cosine),
        "inner_product": weight * first @ G @ second,
    }
