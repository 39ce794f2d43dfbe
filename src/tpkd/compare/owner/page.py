"""What the owner's page shows beside what every page of a comparison does."""

from collections.abc import Mapping
from typing import Any

from tpkd.compare.charts import learning_charts
from tpkd.compare.owner.charts import class_chart, confidence_charts, emphasized, estimate_charts, progress_charts
from tpkd.compare.owner.reading import owner_sentences
from tpkd.compare.owner.tables import MOST_CLASSES, classes_table
from tpkd.compare.reading import not_supported, paper_sentences, what_ran
from tpkd.compare.record import ReportRecords
from tpkd.compare.tables import stamped
from tpkd.report.numbers import plural
from tpkd.report.tables import Content, Traced

Tile = tuple[Content, str, Content]
MOST_TILES = 4
"""What one row of the page has room for."""


def owner_context(records: ReportRecords, shared: Mapping[str, Any]) -> dict[str, Any]:
    """Variables of the owner's template.

    Args:
        records: a comparison or run with an assessment.
        shared: the variables that every page of a comparison has.
    """
    found = records.assessment
    assert found is not None
    several, stamp = len(found.methods) > 1, records.comparison.stamp
    learning = [
        *progress_charts(records),
        *learning_charts(records.comparison, records.methods.title, emphasized(found.best)),
    ]
    return {
        "kicker": "tpkd report",
        "heading": "Which student is best, and how good is it?" if several else "How good is this student?",
        "support_heading": "In short",
        "caution_heading": "What the data do not say",
        "contents": _contents(shared, learning),
        "tiles": _tiles(records),
        "supported": [*owner_sentences(records), what_ran(records.comparison)],
        "not_supported": not_supported(records, paper=False),
        "paper_sentences": paper_sentences(records),
        "over_samples": any(method.accuracy.sample_low is not None for method in found.methods),
        "estimate_charts": estimate_charts(records),
        "class_chart": class_chart(records),
        "page_classes": stamped({"classes": classes_table(records, MOST_CLASSES)}, stamp)["classes"],
        "confidence_charts": confidence_charts(records),
        "all_learning_charts": learning,
    }


def _contents(shared: Mapping[str, Any], learning: list[Any]) -> list[tuple[str, str]]:
    """Anchors and names of the sections that the page has."""
    tables = shared["tables"]
    sections = {
        "accuracy": ("Accuracy", tables["methods"]),
        "classes": ("Classes", tables["classes"]),
        "confidence": ("Confidence", tables["confidence"]),
        "training": ("During training", learning),
        "networks": ("Size and speed", tables["networks"]),
        "final": ("Left to learn", tables["final"]),
        "cells": ("Every cell", True),
        "sweep": ("Settings", shared["sweep"]),
        "protocol": ("What was run", True),
        "paper": ("Beside the paper", True),
    }
    return [(name, title) for name, (title, shown) in sections.items() if shown]


def _tiles(records: ReportRecords) -> list[Tile]:
    """Key numbers: teacher, start, the reference and the best method."""
    found, seen = records.assessment, Traced(records).assessment
    assert found is not None
    tiles: list[Tile] = []
    if found.teacher is not None:
        tiles.append(_tile(seen.teacher.accuracy, found.teacher.accuracy.sample_low, "accuracy of the teacher"))
    if found.start is not None:
        tiles.append(_tile(seen.start, found.start.sample_low, "of the student before training"))
    for name in dict.fromkeys((found.reference, found.best)):
        for method, part in zip(found.methods, seen.methods, strict=True):
            if method.objective != name:
                continue
            over_seeds = plural(method.accuracy.seeds, "seed")
            title = f"{records.methods.title(method.objective)}, {'mean of ' * (method.accuracy.seeds > 1)}{over_seeds}"
            if name == found.best and len(found.methods) > 1:
                title = f"{title}: the highest"
            more: Content = ""
            if method.minus_reference is not None and found.reference is not None:
                difference = part.minus_reference.mean("points")
                more = (difference, f" points from {records.methods.title(found.reference)}")
            elif (wider := method.accuracy.wider) is not None:
                over = "sample" if wider[0] == method.accuracy.sample_low else "seed"
                more = (getattr(part.accuracy, f"{over}_low")("percent"), " to ")
                more = (*more, getattr(part.accuracy, f"{over}_high")("percent"), f" % over {_OVER[over]}")
            tiles.append(((part.accuracy.mean("percent"), " %"), title, more))
            if len(found.methods) == 1 and method.answers is not None:
                tiles.append((part.answers.log_loss("nats"), "nats of log-loss per test sample", ""))
                tiles.append((part.answers.calibration_error("share"), "calibration error, over 15 bins", ""))
    return tiles[:MOST_TILES]


_OVER = {"sample": "test samples", "seed": "seeds"}


def _tile(part: Traced, low: float | None, what: str) -> Tile:
    more: Content = ""
    if low is not None:
        more = (part.sample_low("percent"), " to ", part.sample_high("percent"), " % over test samples")
    return (part.mean("percent"), " %"), what, more
