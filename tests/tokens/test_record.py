"""The record of a run."""

from tpkd.tokens.record import CurvePoint, TokenMetrics, TokenResult


def test_it_comes_back_from_its_file():
    metrics = TokenMetrics(10, 2.0, 7.39, 0.5, 0.25, 0.1, 1.5, margin_fell=0.2)
    record = TokenResult(
        "tpkd-t4", "tpkd", {"beta": 1.0}, 42, 6, 180, "ab", 1000, metrics, (CurvePoint(3, metrics),), metrics, 1.9, 12.5
    )
    assert TokenResult.from_json(record.to_json()) == record
    assert "training_loss" not in record.to_dict()
