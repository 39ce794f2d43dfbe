"""The sentences of the first screen follow the verdicts, and carry their numbers."""

import pytest
from tools.evidence_page import figures, part, render

from evidence.settings import METHODS, write_setting

WORSE = dict.fromkeys(METHODS, 0.5)


def said(results, question):
    (line,) = (line for line in part("answers", results).splitlines() if question in line)
    return line


@pytest.mark.parametrize(
    ("shares", "question", "expected"),
    [
        (
            {"tpkd-t4": 0.7},
            "When should I use",
            "instead of cross-entropy (CE): it ends above CE in every setting asked",
        ),
        ({"tpkd-t4": 0.4}, "When should I use", "Not for accuracy: it ends above CE nowhere"),
        ({}, "When should I use", "These runs do not decide it"),
        ({"tpkd-t4": 0.7}, "At which temperature", "T = 4, β = 1 rather than the paper's"),
        ({"tpkd": 0.7}, "At which temperature", "The paper's T = 1, β = 1/2 rather than"),
        ({}, "At which temperature", "do not tell T = 4"),
        ({"kd": 0.7}, "When KD instead", "Where only accuracy counts: KD"),
        ({"tpkd-t4": 0.7}, "When KD instead", "Not for accuracy: TPKD at T = 4, β = 1 ends above KD"),
        ({}, "When KD instead", "Accuracy is no reason for either"),
        (
            {"tpkd-no-projection-t4": 0.7},
            "What does it cost",
            "At most half a point of accuracy in 0 of 1 settings, more in 1",
        ),
    ],
)
def test_the_sentence_follows_the_verdict(tmp_path, shares, question, expected):
    write_setting(tmp_path, "features-hwu-a", WORSE | shares)
    assert expected in said(tmp_path, question)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        (
            {"tpkd-t4": 0.6},
            "Answers that the start had right: it loses fewer of them than KD in 1 and than the same loss ",
        ),
        (
            {"kd": 0.6},
            "Nothing that these runs can tell in answers kept: it loses fewer of them than KD in 0 and than ",
        ),
    ],
)
def test_protection_is_counted_in_answers_that_the_start_had(tmp_path, shares, expected):
    write_setting(tmp_path, "features-hwu-a", WORSE | shares, start=0.7)
    line = said(tmp_path, "What does protection buy")
    assert expected in line
    kept = 0.1 if "tpkd-t4" in shares else 0.2  # the start is right on 70 %, this method on the first 60 or 50 of them
    assert f"(means: TPKD at T = 4, β = 1 {100 * kept:.0f}." in line


def test_numbers_are_those_of_the_table(tmp_path):
    write_setting(tmp_path, "features-hwu-a", WORSE | {"tpkd-t4": 0.7})
    (row,) = (line for line in part("features-hwu-a", tmp_path).splitlines() if "T = 4, β = 1 ends above KD |" in line)
    _, _, difference, _, both, *_ = (cell.strip() for cell in row.split("|"))
    assert f"above: HWU64 features, teacher A ({difference} {both})" in said(tmp_path, "When KD instead")


def test_settings_that_disagree_are_both_named(tmp_path):
    write_setting(tmp_path, "features-hwu-a", WORSE | {"tpkd-t4": 0.7})
    write_setting(tmp_path, "features-hwu-c", WORSE | {"kd": 0.7})
    line = said(tmp_path, "When KD instead")
    assert "KD (T = 4) ends above in 1, below in 1 settings" in line
    assert "above: HWU64 features, teacher A" in line
    assert "below: HWU64 features, teacher C" in line


def test_a_grid_that_is_not_finished_says_so_and_decides_nothing(tmp_path):
    write_setting(tmp_path, "features-hwu-a", WORSE | {"tpkd-t4": 0.7}, partial=True)
    assert "60 of 540 cells" in part("features-hwu-a", tmp_path).lower()
    assert "no verdict yet: 60 of 540 cells: +20." in part("overview", tmp_path)
    assert "** No verdict yet. TPKD at T = 4, β = 1 minus CE" in said(tmp_path, "When should I use")
    assert "Nothing of this setting has been recorded yet" in part("features-clinc-c", tmp_path)


def test_few_seeds_decide_nothing(tmp_path):
    write_setting(tmp_path, "features-hwu-a", WORSE | {"tpkd-t4": 0.7}, seeds=range(52, 61))
    assert "no verdict: 9 of 10 seeds" in part("overview", tmp_path)
    assert "** No verdict yet. " in said(tmp_path, "When KD instead")


def test_without_any_record_nothing_is_answered(tmp_path):
    write_setting(tmp_path, "features-hwu-a", {"ce": 0.5})
    for question in ("When should I use", "At which temperature", "When KD instead", "What does protection buy"):
        assert said(tmp_path, question).endswith("Not run yet: no verdict.")


def test_blocking_and_what_remains_are_judged(tmp_path):
    write_setting(tmp_path, "features-hwu-a", WORSE)
    rows = part("mechanism", tmp_path).splitlines()
    assert [row.split("|")[-2].strip() for row in rows if "| HWU64" in row] == ["supported", "supported"]
    assert "Yes: of the training pairs under CE, first to last epoch: HWU64 features, teacher A 0.0 % → 40.1 %" in said(
        tmp_path, "Is imitation blocked"
    )


def test_the_same_records_give_the_same_page_and_figures(tmp_path):
    write_setting(tmp_path / "one", "features-hwu-a", WORSE)
    write_setting(tmp_path / "two", "features-hwu-a", WORSE)
    page = "<!-- evidence: answers -->\n<!-- end -->\n<!-- evidence: features-hwu-a -->\n<!-- end -->\n"
    assert render(page, tmp_path / "one") == render(render(page, tmp_path / "two"), tmp_path / "one")
    first, second = (figures(tmp_path / name) for name in ("one", "two"))
    assert first == second
    assert sorted(first) == ["evidence-curves-features-hwu-a.svg", "evidence-forest-features-hwu-a.svg"]
    assert "TPKD-T4" in first["evidence-forest-features-hwu-a.svg"]


@pytest.mark.parametrize(
    ("matched", "expected"),
    [(0.5, "Not for the most part"), (0.68, "For the most part"), (0.7, "Yes"), (0.8, "Yes")],
)
def test_the_lead_over_kd_is_asked_again_at_the_same_step_length(tmp_path, matched, expected):
    shares = {"ce": 0.6, "kd": 0.5, "tpkd": 0.7, "kd-step": matched}
    write_setting(tmp_path, "step-length", shares, start=0.9)
    line = said(tmp_path, "step length?")
    assert f"{expected}: TPKD − KD is +20." in line
    assert said(tmp_path, "When KD instead").endswith("Not run yet: no verdict.")  # a check, not a setting that asks
    assert "this setting does not ask" in part("step-length", tmp_path)


def test_rules_of_choice_that_do_not_hold_are_named(tmp_path):
    write_setting(tmp_path, "features-hwu-a", WORSE, start=0.6, blocked=(0.0, 0.05))
    (row,) = (line for line in part("settings", tmp_path).splitlines() if "HWU64 features, teacher A" in line)
    assert "| CE does not gain; blocked not in 10–70 % |" in row
