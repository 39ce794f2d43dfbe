"""From the record of a comparison and the kept answers to what its owner asks."""

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tpkd.compare.owner.record import (
    AnswerSummary,
    Assessment,
    ClaimedPair,
    ClassFacts,
    Confusion,
    Estimate,
    MethodAssessment,
    TeacherAssessment,
)
from tpkd.compare.record import ComparisonRecord, MethodSummary
from tpkd.compare.statistics import mean_interval, paired_difference
from tpkd.compare.verdicts import PAPER_CLAIMS, measure
from tpkd.errors import InputError
from tpkd.quality.answers import Answers
from tpkd.quality.record import ReliabilityBin
from tpkd.quality.sampling import accuracy_interval, difference_interval, two_way_error
from tpkd.quality.scores import class_accuracies, confusion_counts

REFERENCES = ("ce", "kd")
"""What other methods are compared with: the first of these that finished."""
MOST_CONFUSIONS = 10

BySeed = Mapping[int, Answers]


@dataclass(frozen=True)
class KeptAnswers:
    """The answers of a comparison, as far as they were kept."""

    students: Mapping[str, BySeed]
    """Objective -> seed -> answers."""
    teacher: Answers | None = None
    class_names: Sequence[str] | None = None

    def all(self) -> Iterable[Answers]:
        """Those of every student and of the teacher."""
        for by_seed in self.students.values():
            yield from by_seed.values()
        if self.teacher is not None:
            yield self.teacher


def assess(record: ComparisonRecord, kept: KeptAnswers) -> Assessment:
    """Every method with its intervals over seeds and over test samples, and the quality of its answers.

    Raises:
        InputError: answers are about different test samples.
    """
    _check_labels(kept.all())
    finished = {method.objective: method for method in record.methods if method.mean is not None}
    reference = next((name for name in REFERENCES if name in finished), None)
    best = max(finished, key=lambda name: finished[name].mean or 0.0, default=None)
    pairs = _Pairs(finished, kept.students)
    samples = record.data.test_samples if record.data is not None else None
    methods = tuple(
        MethodAssessment(
            objective=name,
            accuracy=_accuracy(method, kept.students.get(name, {}), samples),
            minus_reference=pairs.difference(name, reference),
            minus_best=pairs.difference(name, best),
            answers=_summary([kept.students[name][seed] for seed in method.seeds])
            if set(method.seeds) <= kept.students.get(name, {}).keys()
            else None,
        )
        for name, method in finished.items()
    )
    one = next(iter(kept.all()), None)
    return Assessment(
        confidence_level=record.confidence_level,
        reference=reference,
        best=best,
        methods=methods,
        teacher=_teacher(record, kept, finished, reference),
        start=_start(record),
        classes=() if one is None else _classes(one, kept.class_names),
        confusions=() if best is None else _confusions(kept, best),
        claimed=tuple(pairs.claimed()),
    )


def _check_labels(answers: Iterable[Answers]) -> None:
    first: Answers | None = None
    for each in answers:
        first = first or each
        if each.quality.num_classes != first.quality.num_classes or not np.array_equal(each.labels, first.labels):
            raise InputError("kept answers: expected the same test samples for all cells and the teacher, found others")


def _accuracy(method: MethodSummary, answers: BySeed, samples: int | None) -> Estimate:
    assert method.mean is not None
    over_samples: tuple[float | None, float | None] = (None, None)
    if set(method.seeds) <= answers.keys():
        over_samples = accuracy_interval(_share([answers[seed] for seed in method.seeds]))
    elif len(method.seeds) == 1:
        over_samples = _counted(method.mean, samples)
    return Estimate(method.mean, len(method.seeds), method.low, method.high, *over_samples)


def _share(answers: Sequence[Answers]) -> np.ndarray:
    """Share of the students that are right on each sample."""
    return np.asarray(np.mean([each.correct for each in answers], axis=0))


@dataclass(frozen=True)
class _Pairs:
    """Differences between methods, over the seeds that both have."""

    methods: Mapping[str, MethodSummary]
    answers: Mapping[str, BySeed]

    def difference(self, name: str, other: str | None) -> Estimate | None:
        if other is None or name == other:
            return None
        values = [
            dict(zip(self.methods[each].seeds, self.methods[each].accuracies, strict=True)) for each in (name, other)
        ]
        pair = paired_difference(other, *values)
        if pair is None:
            return None
        known = [self.answers.get(each, {}) for each in (name, other)]
        over_samples: tuple[float | None, float | None] = (None, None)
        if all(set(pair.seeds) <= by_seed.keys() for by_seed in known):
            shares = [_share([by_seed[seed] for seed in pair.seeds]) for by_seed in known]
            over_samples = difference_interval(shares[0] - shares[1])
        return Estimate(pair.mean, len(pair.seeds), pair.low, pair.high, *over_samples)

    def claimed(self) -> Iterator[ClaimedPair]:
        """Every pair of the paper's claims, over the seeds that both have, if all of their answers were kept."""
        for claim in PAPER_CLAIMS:
            names = (claim.left, claim.right)
            if not all(name in self.methods for name in names):
                continue
            seeds = sorted(set(self.methods[claim.left].seeds) & set(self.methods[claim.right].seeds))
            known = [self.answers.get(name, {}) for name in names]
            if len(seeds) < 2 or not all(set(seeds) <= by_seed.keys() for by_seed in known):
                continue
            left, right = (np.stack([by_seed[seed].correct for seed in seeds]) for by_seed in known)
            if left.shape[1] < 2:
                continue
            error = two_way_error(left - right)
            interval = measure((left - right).mean(1).tolist(), error).interval()
            assert interval is not None
            yield ClaimedPair(claim.left, claim.right, error, *interval)


def _teacher(
    record: ComparisonRecord, kept: KeptAnswers, finished: Mapping[str, MethodSummary], reference: str | None
) -> TeacherAssessment | None:
    if record.teacher is None or record.teacher.accuracy is None:
        return None
    accuracy, answers = record.teacher.accuracy, kept.teacher
    samples = record.data.test_samples if record.data is not None else None
    over_samples = _counted(accuracy, samples) if answers is None else accuracy_interval(answers.correct)
    minus = None
    if reference is not None:
        method = finished[reference]
        differences = [accuracy - other for other in method.accuracies]
        low, high = mean_interval(differences) or (None, None)
        known = kept.students.get(reference, {})
        against: tuple[float | None, float | None] = (None, None)
        if answers is not None and set(method.seeds) <= known.keys():
            against = difference_interval(answers.correct - _share([known[seed] for seed in method.seeds]))
        minus = Estimate(statistics.fmean(differences), len(differences), low, high, *against)
    summary = None if answers is None else _summary([answers])
    return TeacherAssessment(Estimate(accuracy, 1, None, None, *over_samples), minus, summary)


def _start(record: ComparisonRecord) -> Estimate | None:
    if record.start is None or record.start.accuracy is None:
        return None
    samples = record.data.test_samples if record.data is not None else None
    return Estimate(record.start.accuracy, 1, None, None, *_counted(record.start.accuracy, samples))


def _counted(accuracy: float, samples: int | None) -> tuple[float | None, float | None]:
    """The interval of one network: which samples it knows does not matter, only how many."""
    if samples is None:
        return None, None
    return accuracy_interval(np.arange(samples) < round(accuracy * samples))


def _summary(answers: Sequence[Answers]) -> AnswerSummary:
    quality = [each.quality for each in answers]
    losses = [each.log_loss for each in quality]
    rates = np.mean([class_accuracies(each.predictions, each.labels, each.quality.num_classes) for each in answers], 0)
    return AnswerSummary(
        log_loss=None if None in losses else statistics.fmean(loss for loss in losses if loss is not None),
        brier_score=statistics.fmean(each.brier_score for each in quality),
        calibration_error=statistics.fmean(each.calibration_error for each in quality),
        confidence_gap=statistics.fmean(each.confidence - each.accuracy for each in quality),
        risk_coverage_area=statistics.fmean(each.risk_coverage_area for each in quality),
        reliability=tuple(map(_pool, zip(*(each.reliability for each in quality), strict=True))),
        coverage=quality[0].coverage,
        risk=tuple(statistics.fmean(risks) for risks in zip(*(each.risk for each in quality), strict=True)),
        class_accuracy=tuple(None if np.isnan(rate) else float(rate) for rate in rates),
    )


def _pool(bins: Sequence[ReliabilityBin]) -> ReliabilityBin:
    """One bin with the examples of all."""
    filled = [each for each in bins if each.confidence is not None and each.accuracy is not None]
    total = sum(each.examples for each in filled)
    if not total:
        return ReliabilityBin(0, None, None)
    sure = sum(each.examples * (each.confidence or 0.0) for each in filled)
    right = sum(each.examples * (each.accuracy or 0.0) for each in filled)
    return ReliabilityBin(total, sure / total, right / total)


def _classes(answers: Answers, names: Sequence[str] | None) -> tuple[ClassFacts, ...]:
    counts = np.bincount(answers.labels, minlength=answers.quality.num_classes)
    if names is None or len(names) != len(counts):
        names = [str(index) for index in range(len(counts))]
    return tuple(ClassFacts(name, int(count)) for name, count in zip(names, counts, strict=True))


def _confusions(kept: KeptAnswers, best: str) -> tuple[Confusion, ...]:
    """The most frequent wrong answers of the best method, and how often others give them."""
    counted = {name: _mean_confusions(list(by_seed.values())) for name, by_seed in kept.students.items() if by_seed}
    teacher = None if kept.teacher is None else _mean_confusions([kept.teacher])
    pairs = sorted(counted.get(best, {}).items(), key=lambda item: (-item[1], item[0]))[:MOST_CONFUSIONS]
    return tuple(
        Confusion(
            *pair,
            {name: counts.get(pair, 0.0) for name, counts in counted.items()},
            None if teacher is None else teacher.get(pair, 0.0),
        )
        for pair, _ in pairs
    )


def _mean_confusions(answers: Sequence[Answers]) -> dict[tuple[int, int], float]:
    total: Counter[tuple[int, int]] = Counter()
    for each in answers:
        total.update(confusion_counts(each.predictions, each.labels, each.quality.num_classes))
    return {pair: count / len(answers) for pair, count in total.items()}
