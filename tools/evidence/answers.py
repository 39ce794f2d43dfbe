"""The first screen of the page and what other pages say of it: sentences chosen by verdicts, with their numbers."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from tools.evidence.measures import Judged, difference, mean
from tools.evidence.mechanism import Blocking, Continued, Theorems
from tools.evidence.setting import Setting
from tools.evidence.tables import ends
from tpkd.compare.verdicts import EQUAL, FEWEST_SEEDS, NOT_ASKED, NOT_SUPPORTED, SUPPORTED, UNDECIDED
from tpkd.report.numbers import listed, nats, points, share, signed_nats


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
        settings = [setting for setting in self.settings if not setting.plan.claims]
        names = {setting.plan.name for setting in settings}
        blocking = {name: found for name, found in self.blocking.items() if name in names}
        return replace(self, settings=settings, blocking=blocking)

    def with_verdict(self, left: str, right: str, *verdicts: str) -> list[tuple[Setting, Judged]]:
        """A claim in the settings in which it came out so."""
        return [found for found in self.verdicts(left, right) if found[1].verdict in verdicts]


_WORDS = {SUPPORTED: "above", NOT_SUPPORTED: "below", EQUAL: EQUAL, UNDECIDED: "not decided", NOT_ASKED: "not asked"}


def outcome(findings: Findings, left: str, right: str) -> str:
    """A claim over all settings in one clause: how it came out in how many, and by how much; tables name the settings.

    Example: "above in 2 settings (+0.5 to +0.9); not decided in 1 (+0.1)".
    """
    groups: dict[str, list[float]] = {}
    for _, each in findings.verdicts(left, right):
        assert each.found is not None
        groups.setdefault(_WORDS.get(each.verdict, each.verdict), []).append(each.found.over_both.mean)
    said = [f"{word} in {len(means)} ({spread(means, points)})" for word, means in groups.items()]
    return "; ".join(said) or "not run yet"


def spread(values: Sequence[float], write: Callable[[float], str]) -> str:
    """The least and the largest of some numbers, or the one that there is.

    Example:
        >>> spread([0.02, 0.01], points), spread([0.02, 0.02], points)
        ('+1.00 to +2.00', '+2.00')
    """
    low, high = write(min(values)), write(max(values))
    return low if low == high else f"{low} to {high}"


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


@dataclass(frozen=True)
class _Leads:
    """What is said first about a claim, by how it came out over the settings."""

    above: str
    below: str
    undecided: str
    both: str = "It depends on the data"
    unjudged: str = "No verdict yet"

    def of(self, findings: Findings, left: str, right: str) -> str | None:
        """The one that fits; None where the claim was not run."""
        if not findings.verdicts(left, right):
            return None
        above, below = (bool(findings.with_verdict(left, right, verdict)) for verdict in (SUPPORTED, NOT_SUPPORTED))
        if not findings.decides(left, right):
            return self.unjudged
        return {(True, False): self.above, (False, True): self.below, (True, True): self.both}.get(
            (above, below), self.undecided
        )


_WHEN = _Leads(
    above="With a teacher at hand, instead of cross-entropy (CE)",
    below="Not for accuracy: it is nowhere above cross-entropy (CE)",
    undecided="These runs do not decide it against cross-entropy (CE)",
    unjudged="No verdict yet against cross-entropy (CE)",
)
_TEMPERATURE = _Leads(
    above="T = 4, β = 1 rather than the paper's T = 1, β = 1/2",
    below="The paper's T = 1, β = 1/2 rather than T = 4, β = 1",
    undecided="These runs do not tell T = 4, β = 1 from the paper's T = 1, β = 1/2",
)
_INSTEAD = _Leads(
    above="Not for accuracy", below="Where only accuracy counts", undecided="Accuracy does not tell them apart"
)


def _when(findings: Findings) -> str:
    lead = _WHEN.of(findings, "tpkd-t4", "ce")
    asked = _settings(findings.verdicts("tpkd-t4", "ce"))
    return f"{lead}. TPKD minus CE, {asked}: {outcome(findings, 'tpkd-t4', 'ce')}." if lead else _NOT_YET


def _settings(asked: Sequence[object]) -> str:
    return f"{len(asked)} setting{'s' if len(asked) > 1 else ''}"


def _temperature(findings: Findings) -> str:
    lead = _TEMPERATURE.of(findings, "tpkd-t4", "tpkd")
    return f"{lead}: {outcome(findings, 'tpkd-t4', 'tpkd')}." if lead else _NOT_YET


def _instead(findings: Findings) -> str:
    lead = _INSTEAD.of(findings, "tpkd-t4", "kd")
    if lead is None:
        return _NOT_YET
    return (
        f"{lead}. TPKD minus KD (T = 4): {outcome(findings, 'tpkd-t4', 'kd')}; the paper's TPKD minus KD: "
        f"{outcome(findings, 'tpkd', 'kd')}.{_highest(findings)}"
    )


def _highest(findings: Findings) -> str:
    """How often each method has the highest mean accuracy, whichever it is of those with seeds enough for a verdict."""
    best: list[str] = []
    for setting in findings.settings:
        seeds = Counter(cell.method for cell in setting.record.cells)
        enough = [name for name in seeds if seeds[name] >= FEWEST_SEEDS]
        means = {name: mean(setting, name, "accuracy") or 0.0 for name in enough}
        if setting.finished and means:
            best.append(setting.title(max(means, key=lambda name: means[name])))
    counts = (f"{title} in {best.count(title)}" for title in dict.fromkeys(best))
    return f" Highest mean of all methods: {', '.join(counts)}." if best else ""


def _average(findings: Findings, method: str, name: str) -> float | None:
    """A metric of a method as a mean over the settings that have it for all methods of the comparison."""
    values = [mean(setting, method, name) for setting in _complete(findings)]
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _complete(findings: Findings) -> list[Setting]:
    """Settings in which all methods that the sentences compare have run."""
    needed = ("kd", "tpkd", "tpkd-t4", "tpkd-no-projection-t4")
    known = [setting for setting in findings.settings if setting.finished]
    return [setting for setting in known if all(name in setting.scores for name in needed)]


def _protection(findings: Findings) -> str:
    complete = _complete(findings)
    if not complete:
        return _NOT_YET
    fewer = {name: sum(_keeps_more(setting, name) for setting in complete) for name in ("kd", "tpkd-no-projection-t4")}
    said = "Fewer answers lost" if any(fewer.values()) else "Nothing that these runs can tell in answers kept"
    names = {"tpkd-t4": "TPKD", "tpkd-no-projection-t4": "without projection", "kd": "KD", "ce": "CE"}
    lost = ", ".join(f"{name} {share(_average(findings, key, 'flips_start'))}" for key, name in names.items())
    return (
        f"{said}, of those that the start had right: {lost}; fewer than KD in {fewer['kd']} and than without "
        f"projection in {fewer['tpkd-no-projection-t4']} of {_settings(complete)} (95 % intervals, not corrected)."
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
    means = [each.found.over_both.mean for _, each in asked if each.found is not None]
    return f"{said}: without the projection minus with it {spread(means, points)} points."


def _hidden(findings: Findings) -> str:
    if not _complete(findings):
        return _NOT_YET
    names = {"ce": "CE", "kd": "KD", "tpkd": "the paper's TPKD", "tpkd-t4": "TPKD"}
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
    first, last = ([getattr(each, end) for each in findings.blocking.values()] for end in ("first", "last"))
    said = f"It grows in {len(grows)} of {len(first)} settings" if grows else "Not that these runs decide"
    return (
        f"{said}: of the training pairs under CE, {spread(first, share)} are blocked in the first epoch and "
        f"{spread(last, share)} in the last."
    )


def _accumulates(findings: Findings) -> str:
    """How the continuations came out against CE: each verdict with the number of settings and both differences."""
    groups: dict[str, list[Continued]] = {}
    for setting in findings.settings:
        for each in findings.continued.get(setting.plan.name, ()):
            if each.other == "ce":
                groups.setdefault(each.verdict, []).append(each)
    if not groups:
        return "Not repeated yet: the first run has one continuation each, in which TPKD's label loss ended above CE's."
    said = []
    for verdict, found in groups.items():
        conditional, label = (
            spread([getattr(each, name).mean for each in found], signed_nats) for name in ("conditional", "label")
        )
        repeats = min(each.label.seeds for each in found)
        said.append(
            f"{verdict} in {len(found)} (conditional KL {conditional}, label loss {label} nats against CE after 128 "
            f"iterations, {repeats} repeats)"
        )
    return f"The paper's TPKD, {_settings([each for found in groups.values() for each in found])}: {'; '.join(said)}."


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
