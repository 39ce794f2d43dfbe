"""The tables of docs/tokens.md are those of its records."""

from dataclasses import replace

from tools.tokens_page import NOTHING, PAGE, RECORDS, TITLES, read_results, render

from tpkd.tokens.record import CurvePoint, TokenMetrics, TokenResult

SHELL = "".join(f"<!-- tokens: {name} -->\nold\n<!-- end -->\n" for name in ("protocol", "final", "curve"))


def result(name="ce", seed=42, perplexity=300.0, blocked=0.1):
    metrics = TokenMetrics(50_000, 5.7, perplexity, 0.25, blocked, 1.5, 4.0, margin_fell=0.2)
    start = replace(metrics, perplexity=9000.0, margin_fell=None)
    curve = (CurvePoint(40, metrics),)
    return TokenResult(name, "ce", {}, seed, 200, 102_000, "ab", 63_713_088, start, curve, metrics, 2.9, 600.0)


def test_the_page_is_current():
    assert render(PAGE.read_text(), read_results(RECORDS)) == PAGE.read_text(), "write it anew: make tokens"


def test_without_records_it_says_so():
    assert render(SHELL, []).count(NOTHING) == 3


def test_means_and_extremes_over_seeds():
    page = render(SHELL, [result(seed=42), result(seed=43, perplexity=400.0), result("tpkd", perplexity=250.0)])
    assert "3 of 12 runs have finished" in page
    assert "| CE | 2 | 350.0 (300.0 to 400.0) | 25.0 (25.0 to 25.0) |" in page
    assert f"| {TITLES['tpkd']} | 1 | 250.0 |" in page
    assert "| at its start |  | 9,000 |" in page
    assert "| 40 | 10.0 | 1.500 |  |  | 10.0 | 1.500 |  |  |" in page
    assert "old" not in page
