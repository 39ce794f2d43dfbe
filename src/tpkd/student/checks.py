"""Whether an exported student gives the logits of the one it came from."""

from torch import Tensor


class MismatchError(RuntimeError):
    """An exported student computes something else; nothing was published."""


def check_same_logits(found: Tensor, expected: Tensor, *, tolerance: float, where: str) -> None:
    """Refuse logits `(N, K)` that differ by more than a share of the largest expected one.

    Args:
        found: of the exported student.
        expected: of the student itself, on the same inputs.
        tolerance: largest difference, divided by the largest expected logit.
        where: what computed `found`, for the message.

    Raises:
        MismatchError: shapes differ, or a difference is larger, NaN included.

    Example:
        >>> import torch
        >>> check_same_logits(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 2.0]]), tolerance=0, where="ONNX")
        >>> check_same_logits(torch.tensor([[1.0, 2.5]]), torch.tensor([[1.0, 2.0]]), tolerance=0.1, where="ONNX")
        Traceback (most recent call last):
            ...
        tpkd.student.checks.MismatchError: ONNX: expected the student's logits within 0.1 of their size, found a \
difference of 0.25; nothing was written
    """
    if found.shape != expected.shape:
        raise MismatchError(f"{where}: expected logits {tuple(expected.shape)}, found {tuple(found.shape)}")
    scale = expected.abs().max().clamp_min(1e-30)
    difference = float((found.double() - expected.double()).abs().max() / scale)
    if not difference <= tolerance:  # so that NaN is refused too
        raise MismatchError(
            f"{where}: expected the student's logits within {tolerance:g} of their size, found a difference of "
            f"{difference:.2g}; nothing was written"
        )
