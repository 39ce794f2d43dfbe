"""From packed scores to numbers: metrics of every method and seed, paired differences, verdicts on the claims."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean

import numpy as np

from tools.evidence.setting import START, Plan, Setting
from tpkd.compare.verdicts import AccuracyClaim, Measured, gains, holm, judge_accuracy, measure
from tpkd.quality.packed import ExampleScores
from tpkd.quality.sampling import two_way_error
from tpkd.quality.scores import (
    RowScores,
    calibration_error,
    coverage_at_risk,
    expected_errors,
    reliability,
    risk_coverage_area,
)

METRICS = {
    "accuracy": ("accuracy (%)", "percent"),
    "nll": ("NLL", "nats"),
    "fitted_nll": ("NLL, fitted T", "nats"),
    "ece": ("ECE (%)", "percent"),
    "brier": ("Brier", "nats"),
    "aurc": ("AURC (10⁻³)", "milli"),
    "coverage": ("coverage at 1 % risk (%)", "percent"),
    "flips_ce": ("lost against CE (%)", "percent"),
    "flips_start": ("lost against start (%)", "percent"),
    "fell": ("margin fell (%)", "percent"),
}
"""Columns of the table of metrics: heading and format. What they mean is on the page."""


@cache
def _metrics_of(setting: "Keyed", method: str) -> dict[str, dict[int, float]]:
    scores, labels = setting.value.scores[method], setting.value.labels
    found: dict[str, dict[int, float]] = {name: {} for name in METRICS}
    for place, seed in enumerate(scores.seeds):
        right = scores.predictions[place] == labels
        rows = scores.of_seed(seed)
        confidences = rows.confidences
        errors = expected_errors(-rows.log_misses, right)
        values = {
            "accuracy": right.mean(),
            "nll": rows.log_losses.mean(),
            "fitted_nll": scores.fitted_losses[place].mean(),
            "ece": calibration_error(reliability(confidences, right)),
            "brier": rows.brier.mean(),
            "aurc": risk_coverage_area(errors),
            "coverage": coverage_at_risk(errors),
        }
        others = {"flips_ce": one_seed(setting.value.scores.get("ce"), seed)}
        others["flips_start"] = start = one_seed(setting.value.scores.get(START), seed, shared=True)
        for name, other in others.items():
            if other is not None:
                values[name] = ((other.predictions == labels) & ~right).mean()
        if start is not None:
            values["fell"] = (rows.margins < start.margins).mean()
        for name, value in values.items():
            if not np.isnan(value):
                found[name][seed] = float(value)
    return found


@dataclass(frozen=True, eq=False)
class Keyed:
    """A setting that is its own key in a cache."""

    value: Setting


_KEYS: dict[int, Keyed] = {}


def metrics(setting: Setting, method: str) -> dict[str, dict[int, float]]:
    """Every metric of a method: name -> seed -> value.

    Lost: right before, or under CE with the same seed, and wrong now.
    """
    return _metrics_of(_KEYS.setdefault(id(setting), Keyed(setting)), method)


def one_seed(scores: ExampleScores | None, seed: int, *, shared: bool = False) -> RowScores | None:
    """The scores of one seed, or the only ones, where a start is shared by all seeds; None where there are none."""
    if scores is None or (seed not in scores.seeds and not (shared and len(scores.seeds) == 1)):
        return None
    return scores.of_seed(seed if seed in scores.seeds else scores.seeds[0])


def mean(setting: Setting, method: str, name: str) -> float | None:
    """A metric over all seeds of a method."""
    found = metrics(setting, method)[name] if method in setting.scores else {}
    return fmean(found.values()) if found else None


@dataclass(frozen=True)
class Difference:
    """Accuracy of one method minus that of another, over the seeds that both have."""

    over_seeds: Measured
    over_both: Measured
    """With the larger of the errors over seeds, and over seeds and test examples: this one decides."""


def difference(setting: Setting, left: str, right: str, *, kept: bool = False) -> Difference | None:
    """The paired difference of two methods; None if no seed has both.

    Args:
        setting: where.
        left: a method.
        right: another one.
        kept: of the examples that the start has right alone, as a share of all: how many fewer are lost.
    """
    if left not in setting.scores or right not in setting.scores:
        return None
    one, other = setting.scores[left], setting.scores[right]
    seeds = sorted(set(one.seeds) & set(other.seeds))
    if not seeds:
        return None
    correct = [
        (scores.predictions[[scores.seeds.index(seed) for seed in seeds]] == setting.labels).astype(np.float64)
        for scores in (one, other)
    ]
    by_example = correct[0] - correct[1]
    if kept:
        starts = [one_seed(setting.scores.get(START), seed, shared=True) for seed in seeds]
        known = [start.predictions == setting.labels for start in starts if start is not None]
        if len(known) < len(seeds):
            return None
        by_example = by_example * np.stack(known)
    by_seed = by_example.mean(1).tolist()
    errors = [two_way_error(by_example)] if len(seeds) > 1 else []
    return Difference(measure(by_seed), measure(by_seed, *errors))


def gain(setting: Setting) -> list[tuple[float, float]]:
    """Accuracy of CE at its end and at its start, by seed; empty where either is unknown."""
    if "ce" not in setting.scores:
        return []
    ends = metrics(setting, "ce")["accuracy"]
    starts = {seed: one_seed(setting.scores.get(START), seed, shared=True) for seed in ends}
    return [
        (end, float((begun.predictions == setting.labels).mean()))
        for seed, end in ends.items()
        if (begun := starts[seed]) is not None
    ]


@dataclass(frozen=True)
class Judged:
    """A claim in a setting."""

    claim: AccuracyClaim
    found: Difference | None
    adjusted: float
    verdict: str


def judge(
    claims: Sequence[AccuracyClaim], plans: Sequence[Plan], settings: Sequence[Setting]
) -> dict[str, list[Judged]]:
    """The verdicts on all claims in the settings of a family: name of a setting -> claims in their order.

    Args:
        claims: what was claimed of every setting that has no claims of its own.
        plans: all settings of the family; those without records count in the correction, with p = 1.
        settings: those of the family of which there are records.
    """
    known = {setting.plan.name: setting for setting in settings}
    found = {
        (plan.name, claim): difference(known[plan.name], claim.left, claim.right) if plan.name in known else None
        for plan in plans
        for claim in plan.claims or claims
    }
    p_values = [1.0 if each is None else claim.p_value(each.over_both) for (_, claim), each in found.items()]
    adjusted = dict(zip(found, holm(p_values), strict=True))
    asked = {name: not (ends := gain(setting)) or gains(*zip(*ends, strict=True)) for name, setting in known.items()}
    judged: dict[str, list[Judged]] = {setting.plan.name: [] for setting in settings}
    for (name, claim), each in found.items():
        if name in known:
            p_value = adjusted[name, claim]
            verdict = "not run"
            if each is not None:
                # A grid that is still running is not looked at: whoever may stop at will can stop where it looks best.
                verdict = judge_accuracy(claim, each.over_both, p_value, asked=asked[name])
                verdict = verdict if known[name].finished else f"no verdict yet: {known[name].progress}"
            judged[name].append(Judged(claim, each, p_value, verdict))
    return judged
