"""A check of a loss: what it is called, what the loss must have for it, and the finding that comes of it."""

from collections.abc import Callable
from dataclasses import dataclass

from tpkd.check_loss.record import FAIL, NOT_APPLICABLE, NOTE, PASS, LossFinding
from tpkd.check_loss.subject import RefusedError, Subject

NEEDS: dict[str, tuple[Callable[[Subject], bool], str]] = {
    "labels": (lambda subject: subject.loss.has("labels"), "it takes no labels"),
    "teacher": (lambda subject: subject.loss.has("teacher"), "it takes no teacher"),
    "reduction": (lambda subject: subject.loss.has("reduction"), "it takes no reduction"),
    "temperature": (lambda subject: subject.loss.has("temperature"), "it takes no temperature"),
    "teacher's term": (lambda subject: subject.uses_teacher, "it has no teacher's term"),
    "mask": (lambda subject: subject.loss.has("labels") and subject.mask is not None, "it promises no ignore_index"),
    "samples": (lambda subject: not subject.claims.batchwise, "a loss of the whole batch, as you say"),
    "derivative": (lambda subject: not subject.claims.prescribed, "a prescribed direction, as you say"),
}
"""What a check may ask of a loss, and what is said where the loss does not have it."""


@dataclass(frozen=True)
class Verdict:
    """What one check says."""

    outcome: str
    finding: str
    reproduction: str | None = None


Examine = Callable[[Subject], Verdict]


@dataclass(frozen=True)
class Check:
    """One property of a loss; not applicable where the loss lacks one of its needs."""

    name: str
    needs: tuple[str, ...]
    examine: Examine

    def __call__(self, subject: Subject) -> LossFinding:
        """Look; a loss that raises where it has to answer has failed."""
        try:
            missing = (reason for has, reason in map(NEEDS.__getitem__, self.needs) if not has(subject))
            reason = next(missing, None)
            verdict = self.examine(subject) if reason is None else not_applicable(reason)
        except RefusedError as error:
            verdict = failed(f"raises where it should answer: {error}", subject.command(subject.loss.text()))
        return LossFinding(self.name, verdict.outcome, verdict.finding, verdict.reproduction)


def check(name: str, *needs: str) -> Callable[[Examine], Check]:
    """Make a check of a function; `needs` are keys of `NEEDS`."""
    return lambda examine: Check(name, needs, examine)


def passed(finding: str) -> Verdict:
    """The loss does it right."""
    return Verdict(PASS, finding)


def failed(finding: str, reproduction: str) -> Verdict:
    """A fault, with the command that shows it."""
    return Verdict(FAIL, finding, reproduction)


def noted(finding: str) -> Verdict:
    """A choice that a user should know of."""
    return Verdict(NOTE, finding)


def not_applicable(finding: str) -> Verdict:
    """Nothing to examine."""
    return Verdict(NOT_APPLICABLE, finding)
