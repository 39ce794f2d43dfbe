"""The tables of a language model's diagnosis."""

from tpkd.diagnosis.tokens.record import TokenDiagnosis
from tpkd.report.tables import Column, Row, Table, Traced

GROUPS = {
    "by_position": ("place in the block", "By position in the block, counted from the first predicted token"),
    "by_frequency": ("right token occurs", "By frequency of the right token in this text"),
    "by_confidence": ("teacher gives", "By the teacher's confidence in the right token"),
}
"""The heading of the first column and the caption of each table."""

_COLUMNS = ("tokens", "loss", "loss of teacher", "agree", "blocked", "left to learn", "price")


def group_tables(record: TokenDiagnosis) -> tuple[Table, ...]:
    """One table for each way to group tokens; groups without a token are left out."""
    seen = Traced(record)
    return tuple(
        Table(
            name=name.replace("_", "-"),
            caption=caption,
            columns=(Column(heading, text=True), *map(Column, _COLUMNS)),
            rows=tuple(
                _row(group.name, getattr(seen, name)[place].means)
                for place, group in enumerate(getattr(record, name))
                if group.means.tokens
            ),
        )
        for name, (heading, caption) in GROUPS.items()
    )


def _row(name: str, means: Traced) -> Row:
    return (
        name,
        means.tokens("count"),
        means.loss("nats"),
        means.teacher_loss("nats"),
        means.agreement("share"),
        ("≤ ", means.blocked_share("share_up")),
        ("≥ ", means.conditional_loss("nats_down")),
        ("≥ ", means.transfer_cost("nats_down")),
    )
