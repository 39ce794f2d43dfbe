"""Labels that are probabilities: looked at where they enter, and what a diagnosis says of them."""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from tpkd.arrays import ArrayFile
from tpkd.diagnosis.record import SoftLabels
from tpkd.errors import InputError
from tpkd.geometry.constants import retention_bound
from tpkd.geometry.correct import MIN_INCORRECT, is_set, num_correct, sum_tolerance


def main_class(labels: Shaped[Tensor, "..."]) -> Int[Tensor, " rows"]:
    """The class of each label; of a soft one the class with the largest share, the first of equal ones.

    Example:
        >>> main_class(torch.tensor([2, 0])), main_class(torch.tensor([[0.3, 0.0, 0.7, 0.0]]))
        (tensor([2, 0]), tensor([2]))
    """
    if not is_set(labels):
        return labels
    return (labels == labels.amax(-1, keepdim=True)).long().argmax(-1)


def check_soft_labels(source: ArrayFile, labels: Float[Tensor, "rows K"], start: int) -> None:
    """Refuse, by row, what is not a probability vector with at least two classes outside its support.

    A row of zeros, which the losses ignore, is refused too: an example without a label has no diagnosis.

    Raises:
        InputError: names the file and its first wrong row.
    """
    shares = labels.double()
    sums, least = shares.sum(-1), shares.amin(-1)
    wrong = ~((least >= 0) & ((sums - 1).abs() <= sum_tolerance(source.dtype)))
    if wrong.any():
        row = int(wrong.nonzero()[0])
        found = f"least entry {least[row].item():g} and sum {sums[row].item():g}"
        if least[row] < 0:
            found += "; are these logits instead of labels?"
        if not shares[row].any():
            found = "only zeros: leave the row out of all files"
        raise InputError(
            f"{source.path}: row {start + row}: expected probabilities, nonnegative with sum 1, found {found}"
        )
    outside = (shares == 0).sum(-1)
    if (outside < MIN_INCORRECT).any():
        row = int((outside < MIN_INCORRECT).nonzero()[0])
        raise InputError(
            f"{source.path}: row {start + row}: expected at least {MIN_INCORRECT} classes of probability 0, found "
            f"{outside[row].item()}: label smoothing gives every class mass and leaves no relation among incorrect "
            "classes to learn; drop it"
        )


class SoftLabelTotals:
    """How many correct classes the labels have, and how undecided they are."""

    def __init__(self, num_classes: int) -> None:
        """Start with nothing."""
        self.num_classes = num_classes
        self.counts = torch.zeros(num_classes, dtype=torch.long)
        self.entropy = 0.0

    def add(self, labels: Float[Tensor, "rows K"]) -> None:
        """Add a block of probabilities."""
        counts = num_correct(labels)
        assert isinstance(counts, Tensor)
        self.counts += torch.bincount(counts, minlength=len(self.counts))
        # Row by row first: the order of one sum over all would depend on the number of threads.
        self.entropy -= torch.xlogy(labels, labels).sum(-1).sum().item()

    def finish(self) -> SoftLabels:
        """The counts as a record."""
        examples = int(self.counts.sum())
        seen = self.counts.nonzero().squeeze(-1)
        mean = (self.counts * torch.arange(len(self.counts))).sum().item() / examples
        return SoftLabels(int(seen.max()), mean, max(0.0, self.entropy / examples))

    def retention_bound(self) -> float:
        """The least of the guarantees for the numbers of correct classes that occur."""
        return min(retention_bound(self.num_classes, m) for m in self.counts.nonzero().squeeze(-1).tolist())
