"""A diagnosis of a language model in plain words."""

from tpkd.diagnosis.tokens.record import TokenDiagnosis, TokenGroup
from tpkd.report.numbers import count, nats_down, share, share_up

CAVEAT = (
    "The cache kept the largest classes of the teacher alone. So the blocked share is an upper bound, and conditional "
    "loss and price are lower bounds; a token that is not counted as blocked is not blocked. All of this holds up to "
    "the rounding of the answers in the cache."
)


def read_tokens(record: TokenDiagnosis) -> tuple[str, ...]:
    """What was found, in sentences."""
    means = record.all
    sentences = [
        f"Over {count(means.tokens)} tokens the student has a perplexity of {record.perplexity:.2f} and the teacher of "
        f"{record.teacher_perplexity:.2f}; their first choices agree on {share(means.agreement)}.",
        f"On at most {share_up(means.blocked_share)} of the tokens full imitation is blocked: it could not come closer "
        "to the teacher without lowering a margin of the right token.",
        f"At least {nats_down(means.conditional_loss)} nats per token about wrong tokens are left to learn; to take "
        f"over all of it without lowering a margin costs at least {nats_down(means.transfer_cost)} nats of log-odds.",
    ]
    groups = [group for group in record.by_confidence if group.means.tokens]
    if len(groups) > 1:
        most = max(groups, key=_left)
        sentences.append(
            f"Most is left where the teacher's probability of the right token is {most.name}: at least "
            f"{nats_down(most.means.conditional_loss)} nats on {count(most.means.tokens)} tokens."
        )
    return tuple(sentences)


def _left(group: TokenGroup) -> float:
    return group.means.conditional_loss or 0.0
