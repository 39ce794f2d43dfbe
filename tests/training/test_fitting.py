import json
from types import SimpleNamespace

import pytest

from tpkd.config.loading import ConfigError
from tpkd.errors import InputError
from tpkd.objectives import create, names
from tpkd.teacher.teacher import CachedTeacher
from tpkd.training.fitting import check_mixed, check_truncated, kept_classes
from tpkd.training.run import assemble, build_objective, start_accelerator
from training.soft import MIXED, mixed_config, online_config
from training.tiny import make_config, online, plain_config, with_cache

REFUSING = ("dkd", "dp-u", "dp-s", "dhkd", "dto-kd")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    directory = tmp_path_factory.mktemp("fitting")
    with_cache(directory)
    return directory


def refused(config, directory):
    with pytest.raises(ConfigError) as caught:
        assemble(config, start_accelerator(config), directory)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", REFUSING)
def test_an_objective_of_one_label_refuses_mixed_images_by_name(shared, name):
    message = refused(mixed_config(shared, objective=name), shared)
    assert message.startswith("views.mixup: expected 0, found 0.4: mixed images have soft labels")
    assert f"which objective {name!r} does not take; set views.mixup and views.cutmix to 0" in message
    cut = refused(mixed_config(shared, objective=name, views=MIXED | {"mixup": 0}), shared)
    assert cut.startswith("views.cutmix: expected 0, found 1.0")


def is_too_small(name):
    objective = create(name)
    return objective.takes_soft_labels and objective.min_classes >= 3


@pytest.mark.parametrize("name", [name for name in names() if is_too_small(name)])
def test_two_labels_of_three_classes_leave_too_few_to_relate(shared, name):
    class Student:
        feature_size, num_classes, layer_sizes, has_linear_head = 4, 3, (4, 4), True

    config = mixed_config(shared, objective=name)
    teacher = SimpleNamespace(layer_sizes=(24,))
    with pytest.raises(ConfigError, match="objective: labels: expected at least 2 classes outside the support"):
        build_objective(config, Student(), teacher)
    Student.num_classes = 4
    assert build_objective(config, Student(), teacher).name == name


def test_without_mixing_every_objective_is_taken(shared):
    for name in names():
        check_mixed(make_config(shared, objective=name), create(name))


def test_texts_and_vectors_are_not_mixed(tmp_path):
    lines = [json.dumps({"text": f"word {row}", "label": f"class {row % 4}"}) for row in range(24)]
    for part in ("train", "test"):
        (tmp_path / f"{part}.jsonl").write_text("\n".join(lines))
    settings = {"vocab_size": 50, "layers": 1, "hidden_size": 16, "heads": 2}
    for key in ("mixup", "cutmix"):
        config = make_config(
            tmp_path,
            data={"name": f"jsonl:{tmp_path}"},
            limit=None,
            views={key: 0.5},
            student={"model": "builtin:bert", "options": settings},
            teacher=None,
            objective="ce",
        )
        expected = f"views.{key}: expected 0 for text data, found 0.5: only images are mixed"
        assert refused(config, tmp_path) == expected


def test_a_cache_that_never_saw_mixed_images_says_why(shared):
    with pytest.raises(InputError) as caught:
        make_config(shared, views=MIXED)
    assert "teacher.mixed: missing, and the teacher's cache has no answers to mixed images" in str(caught.value)
    with pytest.raises(InputError, match=r"mixed: expected a cache beside it, found none: the model sees the"):
        make_config(shared, ["teacher.cache=null", "teacher.mixed=mixture"], views=MIXED)
    assert make_config(shared, ["teacher.mixed=mixture"]).teacher.mixed == "mixture"  # for a sweep that begins at 0


def test_the_views_of_a_teacher_do_not_mix(shared):
    own = {"num_views": 8, "pad": 1, "scale": 16, "cutmix": 0.5}
    with pytest.raises(InputError, match=r"teacher\.views\.cutmix: expected 0, found 0\.5: views\.cutmix mixes what"):
        make_config(shared, teacher=plain_config(shared)["teacher"] | {"views": own})


@pytest.mark.parametrize("alpha", ["-0.1", ".nan", "half"])
def test_a_parameter_is_a_number_that_is_not_negative(shared, alpha):
    with pytest.raises(InputError, match=r"views\.mixup: "):
        make_config(shared, [f"views.mixup={alpha}"])


def test_a_teacher_that_sees_other_inputs_is_not_run_on_mixed_ones(shared, soft):
    """Both networks see the same picture because a teacher that runs has the student's preparation."""
    config = online_config(shared)
    views = type(config.views)(num_views=8, pad=1, scale=16, std=(0.5,))
    changed = config.model_copy(update={"teacher": config.teacher.model_copy(update={"views": views})})
    assert "needed because the teacher sees other inputs" in refused(changed, shared)


def test_features_and_starts_from_a_cache_are_those_of_unmixed_images(shared, soft, monkeypatch):
    monkeypatch.setattr(soft, "needs", frozenset({"labels", "layer_features"}))
    assert refused(mixed_config(shared), shared).startswith(
        "teacher.cache: expected none with views.mixup: objective 'soft-labels' compares layers"
    )
    monkeypatch.setattr(soft, "needs", frozenset({"labels", "initial_logits"}))
    assert refused(mixed_config(shared, initial={"cache": str(shared / "initial")}), shared).startswith(
        "initial.cache: expected none with views.mixup: the answers in it are to unmixed images; leave it out"
    )


class TestATruncatedTeacher:
    @pytest.fixture
    def truncated(self, shared):
        """A cached teacher whose recipe says that it kept five classes; nothing else is asked of it."""
        teacher = object.__new__(CachedTeacher)
        teacher.cache = SimpleNamespace(recipe=SimpleNamespace(top_k=5))
        return teacher

    @pytest.fixture
    def taking(self, monkeypatch, soft):
        monkeypatch.setattr(soft, "takes_top_k", True)
        return soft()

    def test_is_known_by_its_recipe(self, shared, truncated):
        assert kept_classes(truncated) == 5
        config = make_config(shared)
        whole = assemble(config, start_accelerator(config), shared).teacher
        assert kept_classes(whole) is None
        assert kept_classes(assemble(online(config), start_accelerator(config), shared).teacher) is None
        check_truncated(config, create("dkd"), whole)
        check_truncated(config, create("dkd"), None)

    @pytest.mark.parametrize("name", ["dkd", "dp-u", "dhkd", "dto-kd", "safe-full-kl"])
    def test_is_refused_by_an_objective_that_needs_all_classes(self, shared, truncated, name):
        message = (
            rf"teacher\.cache: expected all classes, found the top 5 .*: objective '{name}' .* without teacher\.top_k"
        )
        with pytest.raises(ConfigError, match=message):
            check_truncated(make_config(shared, objective=name), create(name), truncated)

    def test_is_taken_by_one_that_does_not(self, shared, truncated, taking):
        check_truncated(make_config(shared), taking, truncated)
        check_truncated(make_config(shared), create("ce"), truncated)

    def test_does_not_go_with_mixed_images(self, shared, truncated, taking):
        with pytest.raises(ConfigError, match=r"teacher\.cache: .* one label per image, and a mixed image has two"):
            check_truncated(mixed_config(shared), taking, truncated)
