"""A model card says what the records say, and nothing about the machine."""

import re

from student.runs import digits_run, text_run
from tpkd.config.loading import resolve_config
from tpkd.student.card import LICENCE, model_card, read_environment
from tpkd.student.loading import read_run


def card_of(run, notes=()):
    config, result = read_run(run)
    return model_card(config, result, read_environment(run), list(notes)), config, result


def cells(card):
    return dict(re.findall(r"^\| (\w[\w ]*) \| (.*) \|$", card, flags=re.M))


def test_a_card_has_data_classes_teacher_objective_accuracy_seed_and_versions(tmp_path):
    run = digits_run(tmp_path)
    card, _, result = card_of(run, ["Use it."])
    found = cells(card)
    assert found["Data"] == f"digits, {result.samples} training samples seen in 2 epochs"
    assert found["Classes"] == "10: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    assert found["Teacher"] == "builtin:mlp, weights teacher.safetensors"
    assert found["Objective"] == "tpkd (defaults)"
    assert found["Accuracy"] == f"{result.accuracy:.2%} of 100 test samples, seed 42, one run"
    assert "torch " in found["Versions"]
    assert found["Optimiser"].startswith("sgd (learning")
    assert "- Use it." in card
    assert f"## Licence\n\n{LICENCE}" in card


def test_several_teachers_are_listed_with_their_weights(tmp_path):
    config, result = read_run(digits_run(tmp_path))
    teachers = [{"model": "builtin:mlp", "weights": "a/b.safetensors", "weight": 2.0}, {"cache": "x/cache"}]
    plain = config.model_dump(mode="json") | {"teacher": None, "teachers": teachers}
    several = resolve_config(plain, ["student.layers=[]"])
    found = cells(model_card(several, result, None, []))["Teacher"]
    assert found == "2 averaged: builtin:mlp, weights b.safetensors, weight 2; cache cache, weight 1"


def test_a_selected_student_says_so(tmp_path):
    config, result = read_run(digits_run(tmp_path))
    selected = {
        "selection": "best-validation",
        "selected_epoch": 1,
        "validation_accuracy": 0.5,
        "validation_samples": 10,
    }
    card = model_card(config, type(result).from_dict(result.to_dict() | selected), None, [])
    said = (
        f"{result.accuracy:.2%} of 100 test samples and 50.00% of 10 validation samples, seed 42, one run; the student"
    )
    assert cells(card)["Accuracy"] == f"{said} of epoch 1 of 2, selected by validation accuracy"


def test_settings_of_the_objective_are_in_it(tmp_path):
    config, result = read_run(digits_run(tmp_path))
    objective = config.objective.model_copy(update={"settings": {"beta": 1.0}})
    card = model_card(config.model_copy(update={"objective": objective}), result, None, [])
    assert cells(card)["Objective"] == "tpkd (beta 1.0)"
    assert "Versions" not in cells(card)


def test_folders_of_the_machine_are_not_in_it(tmp_path):
    run = text_run(tmp_path)
    card, config, _ = card_of(run)
    folder = config.data.name.removeprefix("csv:").rpartition("/")[0]
    assert folder
    assert folder in (run / "config.yaml").read_text()
    assert folder not in card
    assert cells(card)["Data"].startswith("csv:data,")


def test_class_names_cannot_break_the_table(tmp_path):
    config, result = read_run(digits_run(tmp_path))
    odd = type(result).from_dict(result.to_dict() | {"class_names": ["a|b", "<script>", "two\nlines"]})
    card = model_card(config, odd, None, [])
    assert r"3: a\|b, \<script\>, two lines" in card
