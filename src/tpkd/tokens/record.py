"""What a run of a language model leaves behind."""

from dataclasses import dataclass
from typing import Any

from tpkd.record import Record, added

RESULT_NAME = "result.json"


@dataclass(frozen=True)
class TokenMetrics:
    """A student on held-out text; losses and prices are means over tokens, in nats."""

    tokens: int
    loss: float
    """Of the right token: the log of the perplexity."""
    perplexity: float
    agreement: float
    """Share of tokens on which the student's first choice is the teacher's."""
    blocked_share: float
    """Of tokens on which imitation may be blocked: an upper bound, up to the rounding of the cache."""
    conditional_loss: float
    """A lower bound."""
    transfer_cost: float
    """A lower bound."""
    margin_fell: float | None = None
    """Share of tokens whose right token is less far above the strongest wrong one than at the start."""


@dataclass(frozen=True)
class CurvePoint:
    """A student on the way."""

    step: int
    metrics: TokenMetrics


@dataclass(frozen=True)
class TokenResult(Record):
    """One run: what it was, and what came out."""

    name: str
    """Of the run in tables: its method."""
    objective: str
    settings: dict[str, Any]
    seed: int
    steps: int
    training_tokens: int
    """Predictions that were learned from, repetitions counted."""
    cache_fingerprint: str
    student_parameters: int
    start: TokenMetrics | None
    curve: tuple[CurvePoint, ...]
    final: TokenMetrics | None
    teacher_loss: float | None
    """Of the teacher on the same held-out tokens."""
    seconds: float
    """Of the steps alone, over all starts."""
    training_loss: tuple[float, ...] = added(())
    """Mean objective over each `log_every` steps."""
