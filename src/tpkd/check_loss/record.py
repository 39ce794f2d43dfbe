"""What the conformance battery found about a loss."""

from dataclasses import dataclass

from tpkd.record import Record

PASS, FAIL, NOTE, NOT_APPLICABLE = "pass", "fail", "note", "n/a"


@dataclass(frozen=True)
class LossFinding:
    """One property of the loss."""

    name: str
    outcome: str
    """`pass`, `fail`, `note` for a choice that is not a fault, or `n/a`."""
    finding: str
    """What was seen, in one line."""
    reproduction: str | None = None
    """A command that shows a failure, to be run where the loss can be imported."""


@dataclass(frozen=True)
class LossCheckRecord(Record):
    """What `tpkd check-loss` found, in the order of the battery."""

    loss: str
    call: str
    """How the loss was called: s, t and y stand for student, teacher and labels."""
    torch: str
    findings: tuple[LossFinding, ...]

    @property
    def failures(self) -> tuple[LossFinding, ...]:
        """The findings that make the command end with exit code 1."""
        return tuple(finding for finding in self.findings if finding.outcome == FAIL)
