"""Inner products over classes, and the one check of a positive number."""

from jaxtyping import Float
from torch import Tensor


def inner(a: Float[Tensor, "*batch K"], b: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch"]:
    """The inner product over classes.

    Example:
        >>> import torch
        >>> inner(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
        tensor(11.)
    """
    # Not vecdot: autocast would compute it in half precision.
    return (a * b).sum(-1)


def check_positive(name: str, value: float) -> None:
    """Refuse a number that is not positive and finite."""
    if not 0 < value < float("inf"):
        raise ValueError(f"{name}: expected a positive finite number, got {value}")
