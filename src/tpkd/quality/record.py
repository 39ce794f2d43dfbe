"""How good the answers of one network are on the test split."""

from dataclasses import dataclass

from tpkd.record import Record


@dataclass(frozen=True)
class ReliabilityBin:
    """Examples of similar confidence."""

    examples: int
    confidence: float | None
    """Their mean confidence; None, like the accuracy, where there are none."""
    accuracy: float | None


@dataclass(frozen=True)
class QualityRecord(Record):
    """Scores of one network on the test split, kept when its logits may be deleted."""

    logits_sha256: str | None
    """Of the file with the logits; None for logits that were never stored by themselves."""
    answers_sha256: str | None
    """Of the file with the class that the network gave for each example; None where it was not stored."""
    examples: int
    num_classes: int
    accuracy: float
    log_loss: float | None
    """Mean negative log-likelihood in nats; None if a label had probability zero."""
    brier_score: float
    confidence: float
    """Mean probability of the class that was given."""
    calibration_error: float
    """Expected calibration error over the bins of `reliability`."""
    risk_coverage_area: float
    reliability: tuple[ReliabilityBin, ...]
    """Bins of equal width over (0, 1]."""
    coverage: tuple[float, ...]
    """Points of the risk–coverage curve."""
    risk: tuple[float, ...]
