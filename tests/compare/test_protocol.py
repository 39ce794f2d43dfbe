from pathlib import Path

import pytest

from tpkd.compare.protocol import SEEDS, paper_protocol
from tpkd.config.loading import load_config
from tpkd.objectives import names

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def protocol_of(file, *overrides, seeds=SEEDS, **others):
    configs = {name: load_config(CONFIGS / file, [*overrides, f"objective.name={name}"]) for name in names()}
    return paper_protocol(configs, dict.fromkeys(configs, seeds) | others)


@pytest.mark.parametrize(("file", "domain"), [("paper-vision.yaml", "vision"), ("paper-text.yaml", "text")])
def test_the_shipped_protocols_are_the_papers(file, domain):
    found = protocol_of(file)
    assert found.domain == domain
    assert found.differences == ()


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("epochs=61", "epochs"),
        ("data.validation=0.1", "data.validation"),
        ("selection=best-validation", "selection"),
        ("limit=2000", "limit"),
        ("evaluation.limit=100", "evaluation.limit"),
        ("views.num_views=4", "views.num_views"),
        ("optimizer.learning_rate=0.1", "optimizer.learning_rate"),
        ("student.model=timm:pit_s_224", "student.model"),
        ("methods.kd={objective.settings: {temperature: 2.0}}", "kd: temperature"),
        ("methods.kl-dist={}", "kl-dist: optimizer.weight_decay"),
        ("methods.tpkd={objective.settings: {beta: 1.0}}", "tpkd: beta"),
    ],
)
def test_every_departure_is_named(override, key):
    (difference,) = protocol_of("paper-vision.yaml", override).differences
    assert difference.startswith(f"{key}: expected ")


def test_several_teachers_are_not_the_papers():
    teachers = "teachers=[{cache: a}, {cache: b}]"
    found = protocol_of("paper-vision.yaml", "teacher=null", teachers).differences
    assert any(line.startswith("teachers.1.cache: expected None") for line in found)
    assert any(line.startswith("teacher.model: expected volo") for line in found)


def test_one_objective_with_fewer_seeds_is_not_the_papers_protocol():
    assert protocol_of("paper-text.yaml", tpkd=(42,)).differences == ("tpkd: seeds: expected [42, 43, 44], found [42]",)


def test_other_seeds_and_the_text_warmup_are_named():
    assert protocol_of("paper-text.yaml", seeds=(42, 43)).differences == (
        "seeds: expected [42, 43, 44], found [42, 43]",
    )
    (difference,) = protocol_of("paper-text.yaml", "methods.dkd={objective.settings: {warmup_epochs: 20}}").differences
    assert difference == "dkd: warmup_epochs: expected 2, found 20"


def test_other_data_belong_to_no_column():
    found = protocol_of("demo.yaml")
    assert found.domain is None
    assert found.differences == ("data.name: expected cifar100 or clinc150, found digits",)
