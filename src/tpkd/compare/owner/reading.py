"""The owner's report in plain words: which method is best, whether the teacher helps, and where the student fails."""

from collections.abc import Iterator

from tpkd.compare.owner.record import Assessment, Estimate, MethodAssessment
from tpkd.compare.owner.tables import ranked_classes
from tpkd.compare.record import ReportRecords
from tpkd.report.numbers import listed, megabytes, milliseconds, percent, points, share, tally

_WELL_CALIBRATED = 0.02
"""Two percentage points: the largest mean gap between confidence and accuracy that is not worth a warning."""
_COVERED = 0.8


def owner_sentences(records: ReportRecords) -> list[str]:
    """What the data say about these networks, most important first."""
    found = records.assessment
    if found is None or not found.methods:
        return []
    return [*_best(records, found), *_teacher(records, found), *_answers(records, found), *_cost(records)]


def _best(records: ReportRecords, found: Assessment) -> Iterator[str]:
    best = found.find(found.best)
    if best is None:
        return
    if len(found.methods) < 2:
        yield _alone(records.methods.title(best.objective), best.accuracy)
        return
    title, others = records.methods.title, [each for each in found.methods if each.minus_best is not None]
    above = [each for each in others if each.minus_best is not None and each.minus_best.side < 0]
    open_ = [each for each in others if each not in above]
    said = f"{title(best.objective)} has the highest mean, {percent(best.accuracy.mean)} %"
    if all(each.minus_best is not None and each.minus_best.seed_low is None for each in others):
        yield f"{said}. One seed per method does not say whether another run would give the same order."
        yield from _told(best, title(best.objective), title(found.reference or ""))
    elif not open_:
        yield f"{said}, and is above every other method."
    elif not above:
        yield f"{said}, but no method can be told from it: the interval of every difference contains zero."
    else:
        lower, equal = (_some([title(each.objective) for each in group]) for group in (above, open_))
        yield f"{said}. It is above {lower}, but cannot be told from {equal}."
    if best.minus_reference is not None and found.reference is not None and best.accuracy.seed_low is not None:
        yield _difference(title(best.objective), title(found.reference), best.minus_reference)


def _alone(name: str, accuracy: Estimate) -> str:
    interval = accuracy.wider
    if interval is None:
        return f"{name} is right on {percent(accuracy.mean)} % of the test samples."
    over = "other test samples" if interval[0] == accuracy.sample_low else "other seeds"
    ends = f"between {percent(interval[0])} and {percent(interval[1])} % with {over}"
    return f"{name} is right on {percent(accuracy.mean)} % of the test samples; expect {ends}."


def _told(best: MethodAssessment, name: str, other: str) -> Iterator[str]:
    """With one seed: what the test samples alone say about two students."""
    versus = best.minus_reference
    if versus is None or versus.sample_low is None or versus.sample_high is None:
        return
    decided = versus.sample_low > 0 or versus.sample_high < 0
    interval = f"{points(versus.sample_low)} to {points(versus.sample_high)}"
    yield (
        f"Of these two students, that of {name} is {_apart(versus.mean, f'that of {other}')}; the interval over test "
        f"samples is {interval}{'' if decided else ', which contains zero'}."
    )


def _difference(name: str, other: str, difference: Estimate) -> str:
    interval = difference.wider
    assert interval is not None
    over = "test samples" if interval[0] == difference.sample_low else "seeds"
    which = "the wider of its two intervals" if difference.sample_low is not None else "the interval"
    said = f"{name} is {_apart(difference.mean, other)} on average"
    ends = f"({points(interval[0])} to {points(interval[1])}, over {over})"
    if difference.side == 0:
        return f"{said}, but {which} {ends} contains zero: this may be chance."
    return f"{said}, and {which} {ends} does not contain zero."


def _apart(difference: float, other: str) -> str:
    """A difference of accuracies in words."""
    size = points(abs(difference)).lstrip("+")
    return f"equal to {other}" if size == "0.00" else f"{size} points {'above' if difference > 0 else 'below'} {other}"


def _some(names: list[str]) -> str:
    """At most four names; of more, three and a count."""
    return listed(names if len(names) <= 4 else [*names[:3], f"{len(names) - 3} others"])


def _teacher(records: ReportRecords, found: Assessment) -> Iterator[str]:
    """A warning if the teacher is worse than what trained without it, or than the student was before training."""
    if found.teacher is None:
        return
    accuracy, versus = found.teacher.accuracy.mean, found.teacher.minus_reference
    if versus is not None and versus.mean < 0 and found.reference == "ce":
        sure = "" if versus.side else ", though the difference may be chance"
        yield (
            f"The teacher is worse than the student that learned from labels alone: {percent(accuracy)} % against "
            f"{percent(accuracy - versus.mean)} % for {records.methods.title('ce')}{sure}. Imitating it whole teaches "
            "its mistakes too."
        )
    if found.start is not None and accuracy < found.start.mean:
        yield (
            f"The teacher ({percent(accuracy)} %) is worse than the student was before training "
            f"({percent(found.start.mean)} %)."
        )


def _answers(records: ReportRecords, found: Assessment) -> Iterator[str]:
    best = found.find(found.best)
    if best is None or best.answers is None:
        return
    title, order = records.methods.title(best.objective), ranked_classes(found)
    rates = best.answers.class_accuracy
    if len(order) > 2 and rates[order[0]] != rates[order[-1]]:
        weakest = listed(f"“{found.classes[index].name}” ({share(rates[index])})" for index in order[:3])
        strongest = f"“{found.classes[order[-1]].name}” ({share(rates[order[-1]])})"
        yield f"{title} is weakest on {weakest}, and strongest on {strongest}."
    if found.confusions:
        pair = found.confusions[0]
        label, answer = found.classes[pair.label], found.classes[pair.answer]
        times = tally(pair.counts[best.objective])
        of = f"{times} of {label.examples} samples on average"
        yield f"Its most frequent mistake: “{answer.name}” for “{label.name}”, {of}."
    gap = best.answers.confidence_gap
    if abs(gap) > _WELL_CALIBRATED:
        kind = "too sure" if gap > 0 else "not sure enough"
        yield f"{title} is {kind}: its confidence is {_apart(gap, 'its accuracy')} on average."
    point = next((place for place, covered in enumerate(best.answers.coverage) if covered >= _COVERED), None)
    if point is not None and best.answers.risk[point] < best.answers.risk[-1]:
        covered, right = best.answers.coverage[point], 1 - best.answers.risk[point]
        yield f"On the {100 * covered:.0f} % of the samples that it is surest of, {title} is right on {share(right)}."


def _cost(records: ReportRecords) -> Iterator[str]:
    networks = records.networks
    if networks is None or networks.teacher is None:
        return
    student, teacher = networks.student, networks.teacher
    smaller = teacher.bytes / student.bytes
    said = f"The student takes {megabytes(student.bytes)} MB, the teacher {megabytes(teacher.bytes)} MB"
    if smaller > 1:
        said += f" ({smaller:.3g} times as much)"
    if student.latencies and teacher.latencies:
        times = [each.latencies[0].milliseconds for each in (student, teacher)]
        if None not in times:
            said += f"; one sample takes {milliseconds(times[0])} ms and {milliseconds(times[1])} ms"
    yield f"{said}."
