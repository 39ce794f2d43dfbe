"""Linear heads: the shared random one, and the probe fitted on frozen features."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from tpkd.errors import extra

HEAD_STD = 0.02
HEAD_LIMIT = 0.04


def random_head(in_features: int, out_features: int, seed: int) -> nn.Linear:
    """A linear layer with truncated normal weights and zero bias, a pure function of its shape and seed.

    Paper: appendix E.1, text: standard deviation 0.02, limits ±0.04.

    Example:
        >>> head = random_head(256, 150, seed=0)
        >>> bool((head.weight.abs() <= 0.04).all()), head.bias.count_nonzero().item()
        (True, 0)
    """
    generator = torch.Generator().manual_seed(seed)
    weight = torch.empty(out_features, in_features, device="cpu")
    nn.init.trunc_normal_(weight, std=HEAD_STD, a=-HEAD_LIMIT, b=HEAD_LIMIT, generator=generator)
    return _linear(weight, torch.zeros(out_features, device="cpu"))


def fit_probe(
    features: Float[Tensor, "N D"], labels: Int[Tensor, "N"], num_classes: int, *, C: float = 0.01
) -> nn.Linear:
    """A linear layer that is a standardised logistic regression on these features.

    Paper: appendix E.1, vision: C = 0.01. With mean m and scale s of each feature over the rows and the regression
    A ((x - m) / s) + b, the layer has weight A / s and bias b - A (m / s). A feature without variation gets weight 0.

    Shapes: features `(N, D)`, labels `(N)` in which every class occurs.

    Returns:
        The layer on the CPU, in the dtype of the features, float32 for half precision; fitted in float64.

    Example:
        >>> features = torch.tensor([[0.0, 3.0], [1.0, 3.0], [5.0, 3.0], [6.0, 3.0], [9.0, 3.0], [10.0, 3.0]])
        >>> probe = fit_probe(features, torch.tensor([0, 0, 1, 1, 2, 2]), num_classes=3, C=100.0)
        >>> probe(features).argmax(-1)
        tensor([0, 0, 1, 1, 2, 2])
    """
    _check_rows(features, labels, num_classes)
    with extra("train"):
        from sklearn.linear_model import LogisticRegression
        from sklearn.preprocessing import StandardScaler
    X, y = features.detach().cpu().double().numpy(), labels.cpu().numpy()
    scaler = StandardScaler().fit(X)
    standardised, constant = scaler.transform(X), constant_columns(X, features.dtype)
    standardised[:, constant] = 0.0  # nothing to learn from, so the penalty leaves its weights at exactly 0
    regression = LogisticRegression(C=C, max_iter=1000).fit(standardised, y)
    A, b = regression.coef_, regression.intercept_
    if num_classes == 2:  # two classes have one decision value; half of it each way gives the same probabilities
        A, b = np.concatenate([-A, A]) / 2, np.concatenate([-b, b]) / 2
    dtype = torch.promote_types(features.dtype, torch.float32)
    m, s = np.where(constant, 0.0, scaler.mean_), np.where(constant, 1.0, scaler.scale_)
    return _linear(torch.from_numpy(A / s).to(dtype), torch.from_numpy(b - A @ (m / s)).to(dtype))


def widened(linear: nn.Linear, in_features: int) -> nn.Linear:
    """The same linear layer for more features, which it ignores.

    Example:
        >>> layer = widened(nn.Linear(2, 3), 4)
        >>> layer.weight.shape, layer.weight[:, 2:].count_nonzero().item()
        (torch.Size([3, 4]), 0)
    """
    # A file does not store strides, and a matrix product with different strides rounds differently.
    known = linear.weight.detach().contiguous()
    padded = functional.pad(known, (0, in_features - linear.in_features))
    return _linear(padded, linear.bias.detach())


def constant_columns(X: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Which columns are constant up to the precision of a dtype.

    A column is constant if its standard deviation is at most eps times its own largest magnitude, which is rounding,
    or at most eps² times the largest magnitude of all columns. The second kind is what a normalisation with a gain of
    1e-33 produces: divided by its deviation, it would get weights whose gradients overflow.

    Args:
        X: rows in float64.
        dtype: the precision in which they were computed; its eps is used.

    Example:
        >>> X = np.array([[1.0, 5.0, 1e-33], [2.0, 5.0, -1e-33]])
        >>> constant_columns(X, torch.float32)
        array([False,  True,  True])
    """
    eps = torch.finfo(dtype).eps
    own = np.abs(X).max(0)
    deviation = (X - X[0]).std(0)  # from the first row, because the mean of equal numbers is not always that number
    constant: np.ndarray = deviation <= np.maximum(eps * own, eps**2 * own.max())
    return constant


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], device="meta")  # no draw from the global random state
    linear.weight, linear.bias = nn.Parameter(weight), nn.Parameter(bias)
    return linear


def _check_rows(features: Tensor, labels: Tensor, num_classes: int) -> None:
    if not features.is_floating_point() or features.ndim != 2:
        raise ValueError(
            f"features: expected a floating-point tensor (N, D), got {features.dtype} of shape {tuple(features.shape)}"
        )
    if labels.shape != features.shape[:1]:
        raise ValueError(f"labels: expected shape ({len(features)},), got {tuple(labels.shape)}")
    if not torch.isfinite(features).all():
        raise ValueError("features: expected finite numbers, got NaN or infinity")
    if int(labels.min()) < 0 or int(labels.max()) >= num_classes:
        found = f"{int(labels.min())} to {int(labels.max())}"
        raise ValueError(f"labels: expected classes 0 to {num_classes - 1}, got {found}")
    absent = (labels.bincount(minlength=num_classes) == 0).nonzero().flatten().tolist()
    if absent:
        raise ValueError(f"labels: expected every class, got no row of {', '.join(map(str, absent[:5]))}")
