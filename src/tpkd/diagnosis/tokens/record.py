"""What was found about a language model."""

from dataclasses import dataclass

from tpkd.record import Record


@dataclass(frozen=True)
class TokenMeans:
    """Means over tokens; losses and prices in nats. Without tokens they are None."""

    tokens: int
    loss: float | None
    """Of the student, for the right token."""
    teacher_loss: float | None
    agreement: float | None
    """Share of tokens on which the first choices are the same."""
    blocked_share: float | None
    """Upper bound, as the two below up to the rounding of the cache."""
    conditional_loss: float | None
    """Lower bound."""
    transfer_cost: float | None
    """Lower bound."""


@dataclass(frozen=True)
class TokenGroup:
    """Tokens that have something in common."""

    name: str
    means: TokenMeans


@dataclass(frozen=True)
class Choice:
    """A token that a model considered."""

    text: str
    probability: float


@dataclass(frozen=True)
class InstructiveToken:
    """A token about whose wrong alternatives the teacher has much to say."""

    document: int
    block: int
    place: int
    """In the block, counted from 0."""
    before: str
    """The text before it, from the beginning of the block at most."""
    token: str
    after: str
    conditional_loss: float
    transfer_cost: float
    may_be_blocked: bool
    student_probability: float
    teacher_probability: float
    student_choices: tuple[Choice, ...]
    teacher_choices: tuple[Choice, ...]


@dataclass(frozen=True)
class TokenDiagnosis(Record):
    """A student beside a teacher's token cache."""

    student: str
    teacher: str
    num_classes: int
    top_k: int
    perplexity: float
    teacher_perplexity: float
    all: TokenMeans
    by_position: tuple[TokenGroup, ...]
    by_frequency: tuple[TokenGroup, ...]
    by_confidence: tuple[TokenGroup, ...]
    instructive: tuple[InstructiveToken, ...]
