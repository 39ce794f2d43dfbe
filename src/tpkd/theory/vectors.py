"""Inner products over classes."""

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
