"""The curves that matter while a run goes on, in one place: `tpkd watch` and TensorBoard show the same ones."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Panel:
    """One picture of a run: a value of its metrics over the steps."""

    name: str
    title: str
    kind: str
    """Of the lines of `metrics.jsonl` that hold it."""
    key: str
    """In those lines."""
    unit: str
    """`nats` or `share`."""
    meaning: str

    @property
    def tag(self) -> str:
        """Its name for trackers, such as `monitor/blocked_share`."""
        return f"{self.kind}/{self.key}"


PANELS = (
    Panel("loss", "Loss", "train", "loss", "nats", "what the objective minimises, mean since the last line"),
    Panel("accuracy", "Test accuracy", "evaluation", "accuracy", "share", "right answers on the test split"),
    Panel("validation_accuracy", "Validation accuracy", "validation", "accuracy", "share", "on the validation part"),
    Panel("blocked_share", "Blocked share", "monitor", "blocked_share", "share", "where imitation must give back"),
    Panel("conditional_loss", "Conditional KL", "monitor", "conditional_loss", "nats", "what is left to learn"),
    Panel("transfer_cost", "Price", "monitor", "transfer_cost", "nats", "the rise in log-odds that pays for all of it"),
)
