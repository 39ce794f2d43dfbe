"""Metrics and differences from packed scores, against what the logits themselves give."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from tools.evidence.measures import difference, gain, judge, mean, metrics
from tools.evidence.setting import read_settings

from evidence.settings import write_setting
from tpkd.compare.verdicts import NOT_ASKED, NOT_SUPPORTED, SUPPORTED
from tpkd.quality.packed import STEP

SHARES = {"ce": 0.6, "kd": 0.7, "tpkd": 0.65, "tpkd-t4": 0.8, "tpkd-no-projection-t4": 0.8}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    results = tmp_path_factory.mktemp("results")
    labels, logits = write_setting(results, "features-hwu-a", SHARES)
    claims, _, (setting,) = read_settings(results)
    return setting, claims, labels, logits


def test_metrics_are_those_of_the_logits(made):
    setting, _, labels, logits = made
    for method in ("ce", "tpkd-t4"):
        found = metrics(setting, method)
        for seed, z in logits[method].items():
            probs, places = softmax(z, axis=1), np.arange(len(labels))
            right = z.argmax(1) == labels
            start = logits["start"][0]
            ce_right, start_right = logits["ce"][seed].argmax(1) == labels, start.argmax(1) == labels
            onehot = np.eye(z.shape[1])[labels]
            exact = {
                "accuracy": right.mean(),
                "flips_ce": (ce_right & ~right).mean(),
                "flips_start": (start_right & ~right).mean(),
            }
            for name, value in exact.items():
                assert found[name][seed] == pytest.approx(value, abs=1e-12), name
            near = {
                "nll": -log_softmax(z, axis=1)[places, labels].mean(),
                "fitted_nll": -log_softmax(z / 1.5, axis=1)[places, labels].mean(),
                "brier": np.square(probs - onehot).sum(1).mean(),
                "ece": abs(right.mean() - probs.max(1).mean()),  # all confidences are in one bin or two
            }
            for name, value in near.items():
                assert found[name][seed] == pytest.approx(value, abs=STEP / 4), name
            order = np.argsort(-probs.max(1))
            risks = np.cumsum(~right[order]) / np.arange(1, len(labels) + 1)
            assert found["aurc"][seed] == pytest.approx(risks.mean(), abs=0.05)


def test_margins_are_compared_with_the_start(made):
    setting, _, labels, logits = made
    places = np.arange(len(labels))

    def margin(z):
        others = z.copy()
        others[places, labels] = -np.inf
        return z[places, labels] - others.max(1)

    begun = margin(logits["start"][0])
    for seed, z in logits["kd"].items():
        moved = margin(z) - begun
        surely = (moved < -3 * STEP).mean(), (moved < 3 * STEP).mean()  # what is nearer may be rounded to either side
        assert surely[0] <= metrics(setting, "kd")["fell"][seed] <= surely[1]


def test_differences_are_paired_by_seed(made):
    setting, _, labels, logits = made
    found = difference(setting, "kd", "ce")
    expected = [
        (logits["kd"][s].argmax(1) == labels).mean() - (logits["ce"][s].argmax(1) == labels).mean()
        for s in range(52, 64)
    ]
    assert found.over_seeds.mean == pytest.approx(np.mean(expected), abs=1e-12)
    assert found.over_seeds.error == pytest.approx(np.std(expected, ddof=1) / np.sqrt(12), abs=1e-12)
    assert found.over_both.error >= found.over_seeds.error
    assert found.over_both.seeds == 12
    assert difference(setting, "kd", "dkd") is None


def test_what_cross_entropy_gains(made):
    setting, *_ = made
    assert len(gain(setting)) == 12
    assert all(after > 0.55 and before < 0.35 for after, before in gain(setting))
    assert mean(setting, "dkd", "accuracy") is None


def test_claims_of_a_family_are_judged_together(made, tmp_path):
    setting, claims, *_ = made
    found = {
        (each.claim.left, each.claim.right): each
        for each in judge(claims, [setting.plan, replace(setting.plan, name="features-hwu-c")], [setting])[
            "features-hwu-a"
        ]
    }
    assert found["tpkd-t4", "kd"].verdict == SUPPORTED
    assert found["tpkd", "kd"].verdict == NOT_SUPPORTED
    assert found["tpkd", "kd-t1"].verdict == "not run"
    assert found["tpkd", "kd-t1"].adjusted == 1.0
    alone = {
        (each.claim.left, each.claim.right): each for each in judge(claims, [setting.plan], [setting])["features-hwu-a"]
    }
    assert found["tpkd", "ce"].adjusted >= alone["tpkd", "ce"].adjusted
    write_setting(tmp_path, "features-hwu-a", SHARES, start=0.9)
    _, _, (lost,) = read_settings(tmp_path)
    assert {each.verdict for each in judge(claims, [lost.plan], [lost])["features-hwu-a"]} == {NOT_ASKED, "not run"}
