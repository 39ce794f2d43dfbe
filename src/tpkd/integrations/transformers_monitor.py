"""What a Trainer logs of blocking and protection beside its loss."""

from typing import Any

from tpkd.errors import extra
from tpkd.integrations.common import MonitorMeans

with extra("text"):
    from transformers import TrainerCallback


class MonitorCallback(TrainerCallback):  # type: ignore[misc]
    """Log how far the teacher is blocked and what protection keeps, with every training entry of the Trainer's log.

    An entry gets `blocked_share`, `conditional_loss`, `compensation`, `retention`, `transfer_cost`, `confidence` and
    `label_loss`: means over the valid positions of all processes, in the steps looked at since the last entry. The
    numbers come from logits the step has anyway; an objective without a teacher has it asked for them.

    Args:
        every: look at one step in so many.

    Example:
        >>> MonitorCallback(every=10).every
        10
    """

    def __init__(self, every: int = 1) -> None:
        """Refuse a rhythm that never looks."""
        if every < 1:
            raise ValueError(f"every: expected at least 1, got {every}")
        self.every, self.looking, self.means = every, False, MonitorMeans()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Look at this step or not."""
        self.looking = (state.global_step + 1) % self.every == 0

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Look away: what follows may be an evaluation."""
        self.looking = False
