"""Comparisons made by hand with the answers of their students."""

from dataclasses import replace

import numpy as np

from compare.cases import cell, comparison
from quality.cases import answers_of
from tpkd.compare.owner.assess import KeptAnswers, assess
from tpkd.compare.record import DataFacts, NetworkState, ReportRecords
from tpkd.compare.reporting import catalogue

CLASSES = ("ant", "bee", "cow", "dog")
SAMPLES = 400


def answered(skills, seeds=(1, 2, 3), teacher=None, start=None, **fields):
    """Objective -> skill of its students: the comparison, and the answers that its accuracies come from."""
    students = {
        name: {seed: answers_of(1000 * place + seed, rows=SAMPLES, skill=skill) for seed in seeds}
        for place, (name, skill) in enumerate(skills.items())
    }
    cells = [
        cell(name, seed, answers.quality.accuracy)
        for name, by_seed in students.items()
        for seed, answers in by_seed.items()
    ]
    known = answers_of(77, rows=SAMPLES, skill=teacher) if teacher is not None else None
    facts = {
        "data": DataFacts("toys", len(CLASSES), 100, SAMPLES, "f"),
        "start": None if start is None else NetworkState("builtin:mlp", "s", start, 1.0),
        "teacher": None if known is None else NetworkState("builtin:mlp", "t", known.quality.accuracy, 1.0),
    }
    record = comparison(cells, **(facts | fields))
    return record, KeptAnswers(students, known, CLASSES)


def records_of(*arguments, kept=True, networks=None, **settings):
    """Records for a report; without kept answers if asked."""
    record, answers = answered(*arguments, **settings)
    found = assess(record, answers if kept else KeptAnswers({}))
    return ReportRecords(catalogue(), record, assessment=found, networks=networks)


def with_estimate(records, objective, **fields):
    """The records with other numbers in a method's difference from the reference and from the best."""
    found = records.assessment
    methods = tuple(
        replace(
            method,
            **{
                name: replace(getattr(method, name), **fields)
                for name in ("minus_reference", "minus_best")
                if getattr(method, name) is not None
            },
        )
        if method.objective == objective
        else method
        for method in found.methods
    )
    return replace(records, assessment=replace(found, methods=methods))


def correct_of(answers, name):
    """Right answers, seeds × samples."""
    return np.stack([each.correct for each in answers.students[name].values()])
