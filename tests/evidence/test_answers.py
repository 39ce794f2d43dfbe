"""The sentences of the first screen follow the verdicts, and carry their numbers."""

import json

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
        ({"tpkd-t4": 0.7}, "When should I use", "With a teacher at hand, instead of cross-entropy (CE). TPKD minus CE"),
        ({"tpkd-t4": 0.4}, "When should I use", "Not for accuracy: it is nowhere above cross-entropy (CE)"),
        ({}, "When should I use", "These runs do not decide it"),
        ({"tpkd-t4": 0.7}, "At which temperature", "T = 4, β = 1 rather than the paper's"),
        ({"tpkd": 0.7}, "At which temperature", "The paper's T = 1, β = 1/2 rather than"),
        ({}, "At which temperature", "do not tell T = 4"),
        ({"kd": 0.7}, "When KD instead", "Where only accuracy counts. TPKD minus KD"),
        ({"tpkd-t4": 0.7}, "When KD instead", "Not for accuracy. TPKD minus KD (T = 4): above in 1"),
        ({}, "When KD instead", "Accuracy does not tell them apart"),
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
        ({"tpkd-t4": 0.6}, "Fewer answers lost, of those that the start had right: TPKD 10."),
        ({"tpkd-t4": 0.6}, "fewer than KD in 1 and than without projection in 1 of 1 setting"),
        ({"kd": 0.6}, "Nothing that these runs can tell in answers kept, of those that the start had right: TPKD 20."),
        ({"kd": 0.6}, "fewer than KD in 0 and than without projection in 0 of 1 setting"),
    ],
)
def test_protection_is_counted_in_answers_that_the_start_had(tmp_path, shares, expected):
    write_setting(tmp_path, "features-hwu-a", WORSE | shares, start=0.7)
    assert expected in said(tmp_path, "What does protection buy")  # the start is right on 70 %, methods on 60 or 50


def test_numbers_are_those_of_the_table(tmp_path):
    write_setting(tmp_path, "features-hwu-a", WORSE | {"tpkd-t4": 0.7})
    (row,) = (line for line in part("features-hwu-a", tmp_path).splitlines() if "T = 4, β = 1 ends above KD |" in line)
    _, _, difference, *_ = (cell.strip() for cell in row.split("|"))
    assert f"above in 1 ({difference})" in said(tmp_path, "When KD instead")


@pytest.mark.parametrize(("kept", "expected"), [(12, "KD in 1"), (10, "KD in 1"), (9, "TPKD in 1"), (3, "TPKD in 1")])
def test_the_highest_mean_is_of_methods_with_seeds_enough(tmp_path, kept, expected):
    write_setting(tmp_path, "features-hwu-a", WORSE | {"kd": 0.9, "tpkd": 0.7})
    path = tmp_path / "features-hwu-a" / "setting.json"
    record = json.loads(path.read_text())
    record["cells"] = [cell for cell in record["cells"] if cell["method"] != "kd" or cell["seed"] < 52 + kept]
    path.write_text(json.dumps(record))
    assert said(tmp_path, "When KD instead").endswith(f"Highest mean of all methods: {expected}.")


def test_the_cost_of_a_setting_is_that_of_its_cells(tmp_path):
    write_setting(tmp_path, "features-hwu-a", WORSE)
    path = tmp_path / "features-hwu-a" / "setting.json"
    record = json.loads(path.read_text())
    for cell in record["cells"]:
        cell["seconds"] = 600.0
    path.write_text(json.dumps(record))
    (row,) = (line for line in part("settings", tmp_path).splitlines() if "HWU64 features, teacher A" in line)
    assert [cell.strip() for cell in row.split("|")][3:5] == ["60", "10.0"]  # five methods, twelve seeds, ten minutes


def test_settings_that_disagree_are_both_counted(tmp_path):
    write_setting(tmp_path, "features-hwu-a", WORSE | {"tpkd-t4": 0.7})
    write_setting(tmp_path, "features-hwu-c", WORSE | {"kd": 0.7})
    line = said(tmp_path, "When KD instead")
    assert "It depends on the data. TPKD minus KD (T = 4): above in 1 (+20." in line
    assert "below in 1 (-20." in line


def test_a_grid_that_is_not_finished_says_so_and_decides_nothing(tmp_path):
    write_setting(tmp_path, "features-hwu-a", WORSE | {"tpkd-t4": 0.7}, partial=True)
    assert "60 of 540 cells" in part("features-hwu-a", tmp_path).lower()
    assert "no verdict yet: 60 of 540 cells: +20." in part("overview", tmp_path)
    assert "** No verdict yet against cross-entropy (CE). TPKD minus CE, 1 setting" in said(
        tmp_path, "When should I use"
    )
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
    line = said(tmp_path, "Is imitation blocked")
    assert "It grows in 1 of 1 settings: of the training pairs under CE, 0.0 % are blocked in the first epoch" in line
    assert "and 40.1 % in the last." in line


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
