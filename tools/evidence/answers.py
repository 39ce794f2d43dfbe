"""The first screen of the page and what other pages say of it: sentences chosen by verdicts, with their numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from tools.evidence.measures import Judged, difference, mean
from tools.evidence.mechanism import Blocking, Continued, Theorems
from tools.evidence.setting import Setting
from tools.evidence.tables import ends
from tpkd.compare.verdicts import EQUAL, FEWEST_SEEDS, NOT_ASKED, NOT_SUPPORTED, SUPPORTED, UNDECIDED
from tpkd.report.numbers import listed, nats, percent, points, share, signed_nats


@dataclass(frozen=True)
class Findings:
    """All that the sentences are made from."""

    settings: Sequence[Setting]
    judged: Mapping[str, Sequence[Judged]]
    blocking: Mapping[str, Blocking]
    continued: Mapping[str, Sequence[Continued]]
    theorems: Theorems

    def verdicts(self, left: str, right: str) -> list[tuple[Setting, Judged]]:
        """A claim in every setting that has it."""
        return [
            (setting, each)
            for setting in self.settings
            for each in self.judged[setting.plan.name]
            if (each.claim.left, each.claim.right) == (left, right) and each.found is not None
        ]

    def decides(self, left: str, right: str) -> bool:
        """Whether there is a verdict on a claim in any setting, if only that it cannot be told."""
        return bool(self.with_verdict(left, right, SUPPORTED, NOT_SUPPORTED, EQUAL, UNDECIDED))

    @property
    def asking(self) -> "Findings":
        """Without settings that check something else, which have claims of their own."""
        return replace(self, settings=[setting for setting in self.settings if not setting.plan.claims])

    def with_verdict(self, left: str, right: str, *verdicts: str) -> list[tuple[Setting, Judged]]:
        """A claim in the settings in which it came out so."""
        return [found for found in self.verdicts(left, right) if found[1].verdict in verdicts]


_WORDS = {SUPPORTED: "above", NOT_SUPPORTED: "below", EQUAL: EQUAL, UNDECIDED: "not decided", NOT_ASKED: "not asked"}


def outcome(findings: Findings, left: str, right: str) -> str:
    """A claim over all settings in one clause: how it came out, where, and by how much.

    Example: "above on HWU64 (+0.5 [+0.1, +0.9]); not decided on CLINC150 (+0.1 [-0.2, +0.4])".
    """
    groups: dict[str, list[str]] = {}
    for setting, each in findings.verdicts(left, right):
        assert each.found is not None
        number = f"{setting.plan.title} ({points(each.found.over_both.mean)} {ends(each.found.over_both)})"
        groups.setdefault(_WORDS.get(each.verdict, each.verdict), []).append(number)
    return "; ".join(f"{word}: {', '.join(where)}" for word, where in groups.items()) or "not run yet"


def answers(findings: Findings) -> list[tuple[str, str]]:
    """Question and answer, at most ten."""
    checks, findings = findings, findings.asking
    return [
        ("When should I use TPKD?", _when(findings)),
        ("At which temperature?", _temperature(findings)),
        ("When KD instead?", _instead(findings)),
        ("What does protection buy?", _protection(findings)),
        ("What does it cost?", _price(findings)),
        ("What does accuracy hide?", _hidden(findings)),
        ("Is imitation blocked?", _blocked(findings)),
        ("Does the gain accumulate?", _accumulates(findings)),
        ("Was the first run's lead over KD one of step length?", _step_length(checks)),
        ("Does the theory hold?", _theory(findings)),
    ]


_NOT_YET = "Not run yet: no verdict."


def _when(findings: Findings) -> str:
    if not findings.verdicts("tpkd-t4", "ce"):
        return _NOT_YET
    above, below = (findings.with_verdict("tpkd-t4", "ce", verdict) for verdict in (SUPPORTED, NOT_SUPPORTED))
    asked = findings.verdicts("tpkd-t4", "ce")
    if above and not below:
        whole = "every setting asked" if len(above) == len(asked) else f"{len(above)} of {len(asked)} settings"
        said = f"With a teacher at hand, instead of cross-entropy (CE): it ends above CE in {whole}"
    elif below and not above:
        said = "Not for accuracy: it ends above CE nowhere"
    elif not findings.decides("tpkd-t4", "ce"):
        said = "No verdict yet"
    elif above:
        counts = f"above cross-entropy (CE) in {len(above)} and below in {len(below)} of {len(asked)} settings"
        said = f"It depends: it ends {counts}"
    else:
        said = "These runs do not decide it against cross-entropy (CE)"
    return f"{said}. TPKD at T = 4, β = 1 minus CE, in points: {outcome(findings, 'tpkd-t4', 'ce')}."


def _temperature(findings: Findings) -> str:
    if not findings.verdicts("tpkd-t4", "tpkd"):
        return _NOT_YET
    above, below = (findings.with_verdict("tpkd-t4", "tpkd", verdict) for verdict in (SUPPORTED, NOT_SUPPORTED))
    if above and not below:
        said = "T = 4, β = 1 rather than the paper's T = 1, β = 1/2"
    elif below and not above:
        said = "The paper's T = 1, β = 1/2 rather than T = 4, β = 1"
    elif not findings.decides("tpkd-t4", "tpkd"):
        said = "No verdict yet"
    elif above:
        said = "It depends on the data"
    else:
        said = "These runs do not tell T = 4, β = 1 from the paper's T = 1, β = 1/2"
    return f"{said}. The difference, in points: {outcome(findings, 'tpkd-t4', 'tpkd')}."


def _instead(findings: Findings) -> str:
    if not findings.verdicts("tpkd-t4", "kd"):
        return _NOT_YET
    above, below = (findings.with_verdict("tpkd-t4", "kd", verdict) for verdict in (SUPPORTED, NOT_SUPPORTED))
    if below and not above:
        said = "Where only accuracy counts: KD (T = 4) ends above TPKD at T = 4, β = 1 wherever the runs decide"
    elif above and not below:
        said = "Not for accuracy: TPKD at T = 4, β = 1 ends above KD (T = 4) wherever the runs decide"
    elif not findings.decides("tpkd-t4", "kd"):
        said = "No verdict yet"
    elif above:
        said = f"Where it was ahead: KD (T = 4) ends above in {len(below)}, below in {len(above)} settings"
    else:
        said = "Accuracy is no reason for either: these runs do not tell KD (T = 4) from TPKD at T = 4, β = 1"
    return (
        f"{said}. TPKD at T = 4, β = 1 minus KD: {outcome(findings, 'tpkd-t4', 'kd')}. "
        f"The paper's TPKD minus KD: {outcome(findings, 'tpkd', 'kd')}.{_highest(findings)}"
    )


def _highest(findings: Findings) -> str:
    """The method with the highest mean accuracy in every setting, whichever it is."""
    found = []
    for setting in findings.settings:
        means = {method.name: mean(setting, method.name, "accuracy") or 0.0 for method in setting.record.methods}
        if setting.finished and means:
            best = max(means, key=lambda name: means[name])
            found.append(f"{setting.plan.title}: {setting.title(best)} {percent(means[best])} %")
    return f" Highest mean of all methods: {', '.join(found)}." if found else ""


def _average(findings: Findings, method: str, name: str) -> float | None:
    """A metric of a method as a mean over the settings that have it for all methods of the comparison."""
    values = [mean(setting, method, name) for setting in _complete(findings)]
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _complete(findings: Findings) -> list[Setting]:
    """Settings in which all methods that the sentences compare have run."""
    needed = ("kd", "tpkd", "tpkd-t4", "tpkd-no-projection-t4")
    return [setting for setting in findings.settings if all(name in setting.scores for name in needed)]


def _protection(findings: Findings) -> str:
    if not _complete(findings):
        return _NOT_YET
    complete = _complete(findings)
    fewer = {name: sum(_keeps_more(setting, name) for setting in complete) for name in ("kd", "tpkd-no-projection-t4")}
    said = (
        "Answers that the start had right"
        if any(fewer.values())
        else "Nothing that these runs can tell in answers kept"
    )
    names = {"tpkd-t4": "TPKD at T = 4, β = 1", "tpkd-no-projection-t4": "without projection", "kd": "KD", "ce": "CE"}
    lost, fell = (
        ", ".join(f"{said} {share(_average(findings, name, metric))}" for name, said in names.items())
        for metric in ("flips_start", "fell")
    )
    return (
        f"{said}: it loses fewer of them than KD in {fewer['kd']} and than the same loss without projection in "
        f"{fewer['tpkd-no-projection-t4']} of {len(complete)} settings (means: {lost}). "
        f"Test examples whose least margin fell below the start's: {fell}."
    )


def _keeps_more(setting: Setting, other: str) -> bool:
    """Whether TPKD at T = 4, β = 1 loses fewer of the start's right answers: ten seeds, by the wider interval."""
    found = difference(setting, "tpkd-t4", other, kept=True)
    if found is None or found.over_both.seeds < FEWEST_SEEDS:
        return False
    interval = found.over_both.interval()
    return interval is not None and interval[0] > 0


def _price(findings: Findings) -> str:
    pair = ("tpkd-no-projection-t4", "tpkd-t4")
    held, broken = (findings.with_verdict(*pair, verdict) for verdict in (SUPPORTED, NOT_SUPPORTED))
    asked = findings.verdicts(*pair)
    if not asked:
        return _NOT_YET
    said = f"At most half a point of accuracy in {len(held)} of {len(asked)} settings"
    if broken:
        said += f", more in {len(broken)}"
    if not findings.decides(*pair):
        said = "No verdict yet"
    numbers = ", ".join(
        f"{setting.plan.title} {points(each.found.over_both.mean)} {ends(each.found.over_both)}"
        for setting, each in asked
        if each.found is not None
    )
    return f"{said}: without the projection minus with it, at T = 4, β = 1: {numbers}."


def _hidden(findings: Findings) -> str:
    if not _complete(findings):
        return _NOT_YET
    names = {"ce": "CE", "kd": "KD", "tpkd": "TPKD", "tpkd-t4": "TPKD at T = 4, β = 1"}
    parts = []
    for metric, said, write in (
        ("nll", "NLL", nats),
        ("fitted_nll", "NLL at a fitted temperature", nats),
        ("ece", "calibration error", share),
    ):
        values = {name: _average(findings, name, metric) for name in names}
        known = {name: value for name, value in values.items() if value is not None}
        if known:
            numbers = ", ".join(f"{names[name]} {write(value)}" for name, value in known.items())
            best = min(known, key=lambda name: known[name])
            parts.append(f"{said}: {numbers} (least: {names[best]})")
    return f"How sure the students are. {'; '.join(parts)}."


def _blocked(findings: Findings) -> str:
    if not findings.blocking:
        return _NOT_YET
    grows = [name for name, each in findings.blocking.items() if each.growth_verdict == SUPPORTED]
    where = ", ".join(
        f"{setting.plan.title} {share(found.first)} → {share(found.last)}"
        for setting in findings.settings
        if (found := findings.blocking.get(setting.plan.name)) is not None
    )
    said = "Yes" if grows else "Not that these runs decide"
    return f"{said}: of the training pairs under CE, first to last epoch: {where}."


def _accumulates(findings: Findings) -> str:
    found = [
        (setting, each)
        for setting in findings.settings
        for each in findings.continued.get(setting.plan.name, ())
        if each.other == "ce"
    ]
    if not found:
        return "Not repeated yet: the first run has one continuation each, in which TPKD's label loss ended above CE's."
    return (
        "; ".join(
            f"{setting.plan.title}: {each.verdict} (conditional KL {signed_nats(each.conditional.mean)}, label loss "
            f"{signed_nats(each.label.mean)} nats against CE, {each.label.seeds} repeats)"
            for setting, each in found
        )
        + "."
    )


def _step_length(findings: Findings) -> str:
    """Whether the difference to KD goes once KD takes steps of TPKD's length."""
    as_run, matched = findings.verdicts("tpkd", "kd"), findings.verdicts("tpkd", "kd-step")
    before = {setting.plan.name: each.found.over_both for setting, each in as_run if each.found}
    if not matched:
        return _NOT_YET
    ((setting, each),) = matched
    assert each.found is not None
    now, then = each.found.over_both, before[setting.plan.name]
    interval = now.interval()
    if now.seeds < FEWEST_SEEDS or interval is None:
        said = f"No verdict: {now.seeds} of {FEWEST_SEEDS} seeds"
    elif interval[0] <= 0:
        said = "Yes"
    else:
        said = "For the most part" if now.mean < then.mean / 2 else "Not for the most part"
    return (
        f"{said}: TPKD − KD is {points(then.mean)} {ends(then)} as it was run, and {points(now.mean)} {ends(now)} "
        "with KD at TPKD's step length; CE does not gain there, so neither is a verdict on the methods."
    )


def _theory(findings: Findings) -> str:
    found = findings.theorems
    return (
        f"{found.violations:,} violations in {found.cases:,} cases of {found.statements} statements, in "
        f"{found.studies} studies."
    )


def full_answers(findings: Findings) -> str:
    """The first screen."""
    return "".join(f"- **{question}** {answer}\n" for question, answer in answers(findings))


def short_answers(findings: Findings) -> str:
    """What the README and other pages say: the four questions that a user asks."""
    return "".join(f"- **{question}** {answer}\n" for question, answer in answers(findings)[:4])


def state(findings: Findings) -> str:
    """How much has been run."""
    parts = [f"{setting.plan.title}: {setting.progress}" for setting in findings.settings]
    return f"{listed(parts)}.\n" if parts else "No cell of the new settings has been recorded yet: no verdict.\n"
