"""Which student of a run is its result: the last one, or the best one on the validation part."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tpkd.training.evaluation import Evaluation
from tpkd.training.run import Run


@dataclass(frozen=True)
class Best:
    """The best student so far, on the validation part."""

    epoch: int
    accuracy: float
    label_loss: float
    state: dict[str, Tensor]
    """All of its parameters and buffers, those of batch normalisation included, on the CPU."""

    @property
    def numbers(self) -> dict[str, float]:
        """What a checkpoint keeps beside the tensors."""
        return {"epoch": self.epoch, "accuracy": self.accuracy, "label_loss": self.label_loss}


def choose(best: Best | None, network: nn.Module, epoch: int, found: Evaluation) -> Best:
    """The better of the best student so far and the one that was just evaluated.

    A higher accuracy wins; with the same accuracy a lower label loss; with the same label loss the earlier epoch.

    Example:
        >>> network, nothing = nn.Linear(1, 1), torch.empty(0)
        >>> best = None
        >>> for epoch, (accuracy, loss) in enumerate([(0.5, 2.0), (0.75, 1.0), (0.75, 0.5), (0.75, 0.5)], start=1):
        ...     best = choose(best, network, epoch, Evaluation(accuracy, loss, nothing, nothing, nothing))
        >>> best.epoch
        3
    """
    if best is not None and (best.accuracy, -best.label_loss) >= (found.accuracy, -found.label_loss):
        return best
    state = {name: value.detach().cpu().clone() for name, value in network.state_dict().items()}
    return Best(epoch, found.accuracy, found.label_loss, state)


def share_buffers(run: Run) -> None:
    """Give every process the buffers of the first, which are those that files hold.

    Statistics of batch normalisation come from each process's own share of a batch. Steps begin with those of the first
    process in any case; without this, the other processes would evaluate another student, and a run that was stopped
    would not choose as one that was not.
    """
    if run.accelerator.num_processes == 1:
        return
    from accelerate.utils import broadcast

    with torch.no_grad():
        for buffer in run.student.buffers():
            buffer.copy_(broadcast(buffer.clone()))
