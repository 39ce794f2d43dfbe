"""No setting of the paper's two configurations changes unnoticed: each is perturbed once."""

import copy
from pathlib import Path

import pytest
from pydantic import ValidationError

from tpkd.compare import protocol
from tpkd.compare.protocol import SEEDS, paper_protocol, resolved_settings
from tpkd.config.loading import load_config
from tpkd.config.schema import RunConfig
from tpkd.objectives import names
from tpkd.training.directory import flat_items

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
DOMAINS = ("vision", "text")
WORDS = ("random", "own", "float16", "float32", "fp32", "bf16", "bilinear", "longest", "cpu", "clinc150", "other")
"""For a setting that is a word: the first that is another one and allowed there."""
SECTIONS = {
    "sgd": {"name": "adam-weight-decay", "learning_rate": 1e-4, "weight_decay": 1e-3},
    "adam-weight-decay": {"name": "sgd", "learning_rate": 3e-4, "weight_decay": 0.01},
    "constant": {"name": "warmup-linear", "warmup": 5},
    "warmup-linear": {"name": "constant"},
}
"""What might stand in place of a section whose name chooses its other keys."""


def shipped(domain, objective):
    return load_config(CONFIGS / f"paper-{domain}.yaml", [f"objective.name={objective}"])


def others(key, value):
    """Values that might stand in place of this one."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, value / 2, value * 2]
    if isinstance(value, str):
        return [word for word in WORDS if word != value]
    if isinstance(value, list):
        longer = [[1], [0.5], ["other"]]
        return [*([*value[:-1], other] for other in others(key, value[-1])), value[:-1]] if value else longer
    if isinstance(value, dict):
        return [{"other": "another"}, {"ce": {"epochs": 3}}]
    return [1, 0.5, "other", {"num_views": 8, "pad": 4, "flip": True}, {}]


def set_leaf(plain, key, value):
    *sections, last = key.split(".")
    for section in sections:
        plain = plain[section]
    plain[last] = value


def leaves_of(config):
    """Dotted keys and values; overrides of single methods, whose keys have dots of their own, are one."""
    plain = config.model_dump(mode="json")
    return {**dict(flat_items("", {**plain, "methods": None})), "methods": plain["methods"]}


def perturbed(config, key, value):
    """The configuration with one leaf changed to something that it could be."""
    for other in others(key, value):
        plain = config.model_dump(mode="json")
        if key in ("optimizer.name", "schedule.name"):
            plain[key.split(".")[0]] = SECTIONS[value]
        else:
            set_leaf(plain, key, other)
        try:
            changed = RunConfig.model_validate(plain)
        except ValidationError:
            continue
        if changed != config:
            return changed
    return unchecked(config, key.split("."), others(key, value)[0])  # one that may not change alone


def unchecked(section, parts, value):
    first, *rest = parts
    value = unchecked(getattr(section, first), rest, value) if rest else value
    return section.model_copy(update={first: tuple(value) if isinstance(value, list) else value})


def is_the_papers(objective, config):
    return not paper_protocol({objective: config}, {objective: SEEDS}).differences


def reason(domain, key):
    """Why this setting may differ; None where it may not."""
    free = {**protocol.FREE, **protocol.FREE_IN[domain]}
    return next((why for name, why in free.items() if key == name or key.startswith(f"{name}.")), None)


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_setting_is_compared_or_free_for_a_reason(domain):
    config = shipped(domain, "tpkd")
    assert is_the_papers("tpkd", config)
    leaves = leaves_of(config)
    assert len(leaves) > 80
    unnoticed = [
        key
        for key, value in leaves.items()
        if reason(domain, key) is None and is_the_papers("tpkd", perturbed(config, key, value))
    ]
    assert unnoticed == []


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("objective", names())
def test_every_setting_of_every_objective_is_compared(domain, objective):
    config, unnoticed = shipped(domain, objective), []
    for name, value in {"unknown": None, **resolved_settings(config)}.items():
        for other in others(name, value)[:1]:
            settings = {**config.objective.settings, name: other}
            changed = config.model_copy(
                update={"objective": config.objective.model_copy(update={"settings": settings})}
            )
            if is_the_papers(objective, changed):
                unnoticed.append(name)
    assert unnoticed == []


@pytest.mark.parametrize("domain", DOMAINS)
def test_what_is_free_exists_and_changes_nothing(domain):
    config = shipped(domain, "tpkd")
    leaves = leaves_of(config)
    compared = {"student.model", "teacher.model", "objective"}  # in another way
    for name in {**protocol.FREE, **protocol.FREE_IN[domain]}.keys() - compared:
        keys = [key for key in leaves if key == name or key.startswith(f"{name}.")]
        assert keys, name
        for key in keys:
            assert is_the_papers("tpkd", perturbed(config, key, leaves[key])), key


@pytest.mark.parametrize(
    ("domain", "owner", "model"),
    [
        ("vision", "student", "timm:pit_b_distilled_224"),
        ("vision", "teacher", "timm:volo_d2_384"),
        ("text", "teacher", "hf:someone/distilbert-large-uncased"),
        ("text", "student", "hf:/models/bert-mini/bert-base"),
    ],
)
def test_a_relative_of_the_papers_network_is_another_network(domain, owner, model):
    config = shipped(domain, "tpkd")
    section = getattr(config, owner).model_copy(update={"model": model})
    found = paper_protocol({"tpkd": config.model_copy(update={owner: section})}, {"tpkd": SEEDS}).differences
    assert [line for line in found if line.startswith(f"{owner}.model: expected ")]


@pytest.mark.parametrize(
    ("domain", "owner", "model"),
    [
        ("vision", "student", "timm:pit_b_224.in1k"),
        ("vision", "teacher", "timm:volo_d2_224.sail_in1k"),
        ("text", "teacher", "hf:/models/bert-large-cased/"),
        ("text", "teacher", "hf:google/bert_uncased_L-24_H-1024_A-16"),
        ("text", "student", "hf:prajjwal1/bert-mini"),
    ],
)
def test_the_same_network_from_elsewhere_is_the_papers(domain, owner, model):
    config = shipped(domain, "tpkd")
    section = getattr(config, owner).model_copy(update={"model": model})
    assert is_the_papers("tpkd", config.model_copy(update={owner: section}))


def test_the_states_of_the_studies_are_those_of_ce():
    config = shipped("vision", "ce")
    assert is_the_papers("ce", config)
    assert not is_the_papers("ce", config.model_copy(update={"snapshots": (20, 60)}))
    spelt = copy.deepcopy(config.model_dump(mode="json"))
    spelt["study"]["blocking"]["states"], spelt["study"]["learning_rate"] = [20, 40, 60], 1e-4
    assert is_the_papers("ce", RunConfig.model_validate(spelt))


def test_what_the_paper_leaves_open_is_said_to_be_a_choice():
    config = shipped("vision", "tpkd")
    views = config.views.model_copy(update={"mean": (0.5, 0.5, 0.5)})
    (line,) = paper_protocol({"tpkd": config.model_copy(update={"views": views})}, {"tpkd": SEEDS}).differences
    assert line == (
        "views.mean: expected [0.485, 0.456, 0.406] (not stated in the paper: as in configs/paper-vision.yaml), "
        "found [0.5, 0.5, 0.5]"
    )
