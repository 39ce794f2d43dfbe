"""Rewrite the tables of docs/tokens.md from results/tokens/: a comment names each table, `<!-- end -->` closes it.

`python tools/tokens_page.py RUNS` first copies the results of finished runs, RUNS/NAME-SEED/result.json, to
results/tokens/NAME-SEED.json.
"""

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from tpkd.tokens.record import RESULT_NAME, TokenMetrics, TokenResult

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tokens.md"
RECORDS = ROOT / "results" / "tokens"
TITLES = {
    "ce": "CE",
    "kd": "KD, merged tail, T = 1",
    "tpkd": "TPKD, β = 1/2, T = 1",
    "tpkd-t4": "TPKD, β = 1, T = 4",
}
COLUMNS: dict[str, Callable[[TokenMetrics], float | None]] = {
    "perplexity": lambda metrics: metrics.perplexity,
    "agreement, %": lambda metrics: 100 * metrics.agreement,
    "blocked ≤, %": lambda metrics: 100 * metrics.blocked_share,
    "left to learn ≥, nats": lambda metrics: metrics.conditional_loss,
    "price ≥, nats": lambda metrics: metrics.transfer_cost,
    "margin fell, %": lambda metrics: None if metrics.margin_fell is None else 100 * metrics.margin_fell,
}
NOTHING = "No run has finished yet.\n"
_SHOWN = re.compile(r"<!-- tokens: (\w+) -->\n.*?<!-- end -->", re.S)


def read_results(directory: Path) -> list[TokenResult]:
    """All records, by method in the order of `TITLES` and by seed."""
    found = [TokenResult.from_json(path.read_text()) for path in sorted(directory.glob("*.json"))]
    order = list(TITLES)
    return sorted(found, key=lambda result: (order.index(result.name), result.seed))


def render(page: str, results: list[TokenResult]) -> str:
    """The page with the tables of these results."""
    tables = {"final": final_table, "curve": curve_table, "protocol": protocol}
    return _SHOWN.sub(
        lambda match: (
            f"<!-- tokens: {match[1]} -->\n\n{tables[match[1]](results) if results else NOTHING}\n<!-- end -->"
        ),
        page,
    )


def protocol(results: list[TokenResult]) -> str:
    """What all runs have in common, and how many there are."""
    first = results[0]
    same = {(each.steps, each.training_tokens, each.cache_fingerprint, each.student_parameters) for each in results}
    if len(same) != 1:
        raise SystemExit(f"{RECORDS}: expected runs of one protocol, found {len(same)}")
    minutes = [each.seconds / 60 for each in results]
    return (
        f"{len(results)} of 12 runs have finished. Each takes {first.steps} steps over {first.training_tokens:,} "
        f"predictions; the student has {first.student_parameters / 1e6:.1f} M parameters. Steps took "
        f"{min(minutes):.0f} to {max(minutes):.0f} minutes per run, on two cores that other work shared.\n"
    )


def final_table(results: list[TokenResult]) -> str:
    """Each method on held-out text: the mean over seeds, and the least and the largest."""
    lines = [("student", "seeds", *COLUMNS)]
    start = results[0].start
    if start is not None:
        lines.append(("at its start", "", *(_single(column(start)) for column in COLUMNS.values())))
    for name, title in TITLES.items():
        finals = [each.final for each in results if each.name == name and each.final is not None]
        if finals:
            cells = (_spread([column(metrics) for metrics in finals]) for column in COLUMNS.values())
            lines.append((title, str(len(finals)), *cells))
    return _markdown(lines)


def curve_table(results: list[TokenResult]) -> str:
    """Blocked share and conditional loss on the way, means over seeds."""
    steps = sorted({point.step for each in results for point in each.curve})
    lines = [("step", *(f"{title}: {what}" for title in TITLES.values() for what in ("blocked ≤, %", "left ≥, nats")))]
    for step in steps:
        cells = []
        for name in TITLES:
            points = [p.metrics for each in results if each.name == name for p in each.curve if p.step == step]
            cells.append(_mean(100 * metrics.blocked_share for metrics in points))
            cells.append(_mean(metrics.conditional_loss for metrics in points))
        lines.append((str(step), *cells))
    return _markdown(lines)


def _single(value: float | None) -> str:
    return "" if value is None else _number(value)


def _spread(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    mean = _number(sum(known) / len(known))
    return mean if len(known) == 1 else f"{mean} ({_number(min(known))} to {_number(max(known))})"


def _mean(values: Iterable[float]) -> str:
    known = list(values)
    return _number(sum(known) / len(known)) if known else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def _markdown(lines: list[tuple[str, ...]]) -> str:
    ruled = [lines[0], (":---", *["---:"] * (len(lines[0]) - 1)), *lines[1:]]
    return "".join(f"| {' | '.join(line)} |\n" for line in ruled)


def collect(runs: Path) -> None:
    """Copy the results of finished runs."""
    RECORDS.mkdir(parents=True, exist_ok=True)
    for path in sorted(runs.glob(f"*/{RESULT_NAME}")):
        (RECORDS / f"{path.parent.name}.json").write_text(path.read_text())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        collect(Path(sys.argv[1]))
    PAGE.write_text(render(PAGE.read_text(), read_results(RECORDS)))
