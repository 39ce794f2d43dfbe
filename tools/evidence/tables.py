"""The tables of the page: metrics of a setting, its claims, what the settings say about the mechanism."""

from collections.abc import Iterator, Mapping, Sequence

from tools.evidence.measures import METRICS, Judged, gain, mean, metrics
from tools.evidence.mechanism import Continued, blocking
from tools.evidence.setting import START, TEACHER, Plan, Setting
from tpkd.compare.verdicts import Measured, gains
from tpkd.report.numbers import FORMATS, count, nats, points, share, signed_nats
from tpkd.report.tables import Column, Row, Table

BLOCKED = (0.1, 0.7)
"""The share of CE's training pairs that is to be blocked at its end, by the rules of choice."""
NOT_YET = "Nothing of this setting has been recorded yet: no verdict."


def metrics_table(setting: Setting) -> Table:
    """Every method with all metrics, means over its seeds."""
    rows: list[Row] = []
    names = [START, *(method.name for method in setting.record.methods), TEACHER]
    titles = {START: "start", TEACHER: "teacher"}
    shown = {
        name: column
        for name, column in METRICS.items()
        if any(mean(setting, method.name, name) is not None for method in setting.record.methods)
    }
    for name in names:
        if name in setting.scores:
            found = metrics(setting, name)
            values = [
                "" if name in titles and metric in _AGAINST else FORMATS[kind](mean(setting, name, metric))
                for metric, (_, kind) in shown.items()
            ]
            blank = ["" if value == "none" else value for value in values]
            seeds = "" if name in titles else str(len(found["accuracy"]))
            rows.append((titles.get(name, setting.title(name)), seeds, *blank))
    columns = (Column("method", text=True), Column("seeds"), *(Column(heading) for heading, _ in shown.values()))
    caption = f"{setting.plan.title}: means over seeds on {count(setting.record.test_samples)} test examples."
    return Table("metrics", caption, columns, tuple(rows))


_AGAINST = ("flips_ce", "flips_start", "fell")


def claims_table(setting: Setting, judged: Sequence[Judged]) -> Table:
    """Every accuracy claim in a setting."""
    rows: list[Row] = []
    for each in judged:
        if each.found is None:
            rows.append((each.claim.statement, "", "", "", "", "", each.verdict))
            continue
        both = each.found.over_both
        rows.append(
            (
                each.claim.statement,
                points(both.mean),
                ends(each.found.over_seeds),
                ends(both),
                str(both.seeds),
                p_value(each.adjusted),
                each.verdict,
            )
        )
    columns = (
        Column("claim", text=True),
        Column("difference (points)"),
        Column("95 % over seeds"),
        Column("over seeds and examples"),
        Column("seeds"),
        Column("p (Holm)"),
        Column("verdict", text=True),
    )
    return Table(
        "claims", f"{setting.plan.title} ({setting.plan.role}): accuracy, paired by seed.", columns, tuple(rows)
    )


def ends(found: Measured) -> str:
    """The 95 % interval of a difference of accuracies, in points."""
    interval = found.interval()
    return "" if interval is None else f"[{points(interval[0])}, {points(interval[1])}]"


def p_value(value: float) -> str:
    """A p-value to three digits.

    Example:
        >>> p_value(0.0004), p_value(0.0312), p_value(1.0)
        ('<0.001', '0.031', '1.000')
    """
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def overview_table(
    plans: Sequence[Plan], settings: Mapping[str, Setting], judged: Mapping[str, Sequence[Judged]]
) -> Table:
    """One row per claim and one column per setting: the verdict and its number."""
    shown = [plan for plan in plans if plan.name in settings and not plan.claims]
    claims = [each.claim for each in judged[shown[0].name]] if shown else []
    rows: list[Row] = []
    for place, claim in enumerate(claims):
        cells = []
        for plan in shown:
            each = judged[plan.name][place]
            number = f": {points(each.found.over_both.mean)} {ends(each.found.over_both)}" if each.found else ""
            cells.append(f"{each.verdict}{number}")
        rows.append((claim.statement, *cells))
    columns = (Column("claim", text=True), *(Column(plan.title, text=True) for plan in shown))
    caption = "Accuracy claims: verdict, difference in points, and its 95 % interval over seeds and test examples."
    return Table("overview", caption, columns, tuple(rows))


def settings_table(plans: Sequence[Plan], settings: Mapping[str, Setting]) -> Table:
    """What was run, and whether cross-entropy gains there."""
    rows: list[Row] = []
    for plan in plans:
        setting = settings.get(plan.name)
        if setting is None:
            planned = "" if plan.cells is None else f"0 of {plan.cells:,}"
            rows.append((plan.title, plan.role, planned, *("",) * 7))
            continue
        seen = gain(setting)
        before, after = (
            (sum(values) / len(seen) for values in zip(*((b, a) for a, b in seen), strict=True))
            if seen
            else (None, None)
        )
        found = blocking(setting)
        rows.append(
            (
                plan.title,
                plan.role,
                setting.progress.removesuffix(" cells"),
                f"{sum(cell.seconds for cell in setting.record.cells) / 3600:.1f}",
                FORMATS["percent"](before),
                FORMATS["percent"](after),
                FORMATS["percent"](mean(setting, TEACHER, "accuracy")),
                "" if found is None else share(found.first),
                "" if found is None else share(found.last),
                "; ".join(broken_rules(setting)) or "kept",
            )
        )
    columns = (
        Column("setting", text=True),
        Column("role", text=True),
        Column("cells"),
        Column("hours"),
        *(Column(name) for name in ("start (%)", "CE (%)", "teacher (%)", "blocked, first epoch", "last epoch")),
        Column("the rules of choice, on test", text=True),
    )
    caption = (
        "The settings: hours of one core in all cells, accuracy before and after CE, and the share of CE's training "
        "pairs that is blocked."
    )
    return Table("settings", caption, columns, tuple(rows))


def broken_rules(setting: Setting) -> Iterator[str]:
    """Which of the rules that settings were chosen by do not hold in the records."""
    seen, found = gain(setting), blocking(setting)
    if seen and not gains(*zip(*seen, strict=True)):
        yield "CE does not gain"
    if found is not None and not BLOCKED[0] <= found.last <= BLOCKED[1]:
        yield f"blocked not in {100 * BLOCKED[0]:g}–{100 * BLOCKED[1]:g} %"
    teacher, student = mean(setting, TEACHER, "accuracy"), mean(setting, "ce", "accuracy")
    if teacher is not None and student is not None and teacher < student:
        yield "teacher below CE"


def mechanism_table(settings: Sequence[Setting], continued: Mapping[str, Sequence[Continued]]) -> Table:
    """Blocking, what remains, and continuations: one row per claim and setting."""
    rows: list[Row] = []
    for setting in settings:
        found = blocking(setting)
        if found is not None:
            grown = f"{points(found.growth.mean)} points {ends(found.growth)}"
            rows.append(
                ("blocking grows by more than 1 point under CE", setting.plan.title, grown, found.growth_verdict)
            )
        if found is not None and found.remaining is not None:
            left = f"{nats(found.remaining)} nats, floor {nats(found.floor)}"
            statement = "more knowledge remains where imitation is blocked than two seeds differ by"
            rows.append((statement, setting.plan.title, left, found.remaining_verdict))
        for each in continued.get(setting.plan.name, ()):
            other = {"ce": "CE", "compensation-only": "compensation only"}[each.other]
            statement = f"128 iterations on: conditional KL below {other}'s, label loss not above"
            numbers = f"{signed_nats(each.conditional.mean)} and {signed_nats(each.label.mean)} nats"
            rows.append((statement, setting.plan.title, f"{numbers}, {each.label.seeds} repeats", each.verdict))
    columns = (
        Column("claim", text=True),
        Column("setting", text=True),
        Column("found", text=True),
        Column("verdict", text=True),
    )
    return Table("mechanism", "The mechanism in the same settings.", columns, tuple(rows))
