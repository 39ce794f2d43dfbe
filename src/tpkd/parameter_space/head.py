"""The smallest change of a classification head that moves every output of a batch exactly as prescribed."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tpkd.geometry.inputs import computation_dtype

HEAD_METHODS = ("svd", "gram")

_GRAM_FLOOR = 1e-11
"""The least squared singular value, relative to the largest, that the Gram matrix still resolves to ten digits."""
_GRAM_REFINEMENTS = 3
"""Each multiplies the error by the squared condition number times 2e-16; three leave what the residual itself loses."""


@dataclass(frozen=True)
class HeadFactorization:
    """Frozen features prepared for any number of exact head updates, each of cost O(N D K)."""

    pseudoinverse: Float[Tensor, "D N"]
    """X^+ in float64, with X X^+ = I."""
    feature_dtype: torch.dtype
    """The dtype the features came in."""

    def update(self, direction: Float[Tensor, "N K"], step_size: float) -> Float[Tensor, "D K"]:
        """The head displacement -step_size X^+ direction; see `exact_head_update`."""
        num_rows = self.pseudoinverse.shape[1]
        if not direction.is_floating_point() or direction.ndim != 2 or direction.shape[0] != num_rows:
            raise ValueError(
                f"direction: expected a floating-point tensor of shape ({num_rows}, K), a row for each of features, "
                f"got {direction.dtype} of shape {tuple(direction.shape)}"
            )
        if not math.isfinite(step_size):
            raise ValueError(f"step_size: expected a finite number, got {step_size}")
        displacement = self.pseudoinverse @ (-step_size * direction.detach().double())
        return displacement.to(torch.promote_types(computation_dtype(direction), self.feature_dtype))


def factorize_features(features: Float[Tensor, "N D"], *, method: str = "svd") -> HeadFactorization:
    """Prepare frozen features for repeated exact head updates; the work that does not depend on the direction.

    Paper: appendix D.1. Both methods give X^+ in float64: `"svd"` from the singular values of X, `"gram"` from the
    eigenvalues of X X^T in O(N^2 D + N^3), with steps of refinement against the squared condition number.

    Rows count as dependent when a singular value is below the rounding of the features' own dtype, relative to the
    largest; `"gram"` sees squares, and refuses already below 3e-6, where it would lose digits that `"svd"` keeps.

    Example:
        >>> head = factorize_features(torch.tensor([[1.0, 0.0, 1.0], [0.0, 2.0, 0.0]]))
        >>> head.update(torch.tensor([[0.5, -1.0, 0.5], [1.0, 1.0, -2.0]]), step_size=0.1)
        tensor([[-0.0250,  0.0500, -0.0250],
                [-0.0500, -0.0500,  0.1000],
                [-0.0250,  0.0500, -0.0250]])
    """
    _check_features(features, method)
    X = features.detach().double()
    rounding = max(max(X.shape) * torch.finfo(torch.float64).eps, torch.finfo(features.dtype).eps)
    if method == "svd":
        P, s, Qt = torch.linalg.svd(X, full_matrices=False)
        _check_rank(X, int((s > rounding * s[0]).sum()))
        return HeadFactorization(Qt.mT @ (P / s).mT, features.dtype)
    squares, E = torch.linalg.eigh(X @ X.mT)
    _check_rank(X, int((squares > max(_GRAM_FLOOR, rounding**2) * squares[-1]).sum()))
    inverse = (E / squares) @ E.mT
    identity = torch.eye(X.shape[0], dtype=X.dtype, device=X.device)
    pseudoinverse = X.mT @ inverse
    for _ in range(_GRAM_REFINEMENTS):
        pseudoinverse = pseudoinverse + X.mT @ (inverse @ (identity - X @ pseudoinverse))
    return HeadFactorization(pseudoinverse, features.dtype)


def exact_head_update(
    features: Float[Tensor, "N D"], direction: Float[Tensor, "N K"], step_size: float, *, method: str = "svd"
) -> Float[Tensor, "D K"]:
    """The head displacement of least Frobenius norm that moves every logit row by exactly -step_size * direction.

    Paper: prop:exact, eq:exact. dA = -eta X^+ V, so that X (A + dA) = X A - eta V when X has full row rank; the head
    step then inherits every margin and loss ordering of the output step.

    Shapes: features `(N, D)` that already hold the bias column (`absorb_bias`), direction `(N, K)`; returns `(D, K)`,
    the transpose of what `nn.Linear` stores. Computed in float64; returned in the wider dtype of the two inputs, at
    least float32. Rows that are dependent (always so for N > D) raise a `ValueError` that names the rank found.

    Example:
        >>> features = absorb_bias(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
        >>> direction = torch.tensor([[-1.0, 0.5, 0.5], [0.5, -1.0, 0.5]])
        >>> features @ exact_head_update(features, direction, step_size=0.5)
        tensor([[ 0.5000, -0.2500, -0.2500],
                [-0.2500,  0.5000, -0.2500]])
    """
    return factorize_features(features, method=method).update(direction, step_size)


def absorb_bias(features: Float[Tensor, "N D"]) -> Float[Tensor, "N D+1"]:
    """Features with a last column of ones, whose head row is the bias.

    Paper: appendix D.1. For a layer `nn.Linear(D, K)` the head weight is `torch.cat([weight, bias[:, None]], 1).T`.

    Example:
        >>> absorb_bias(torch.tensor([[2.0, 3.0]]))
        tensor([[2., 3., 1.]])
    """
    if features.ndim != 2:
        raise ValueError(f"features: expected shape (N, D), got {tuple(features.shape)}")
    return torch.cat([features, torch.ones_like(features[:, :1])], dim=1)


def _check_features(features: Tensor, method: str) -> None:
    if method not in HEAD_METHODS:
        raise ValueError(f"method: expected one of {', '.join(HEAD_METHODS)}, got {method!r}")
    if not features.is_floating_point() or features.ndim != 2 or 0 in features.shape:
        raise ValueError(
            "features: expected a floating-point tensor of shape (N, D) that is not empty, "
            f"got {features.dtype} of shape {tuple(features.shape)}"
        )
    if not features.isfinite().all():
        raise ValueError("features: expected finite numbers, got NaN or infinity")


def _check_rank(features: Tensor, rank: int) -> None:
    num_rows, width = features.shape
    if rank < num_rows:
        reason = "more rows than columns" if num_rows > width else "dependent rows"
        raise ValueError(
            f"features: expected full row rank {num_rows}, got rank {rank} for shape ({num_rows}, {width}): {reason}, "
            "so no head moves every output as prescribed; use fewer or other rows"
        )
