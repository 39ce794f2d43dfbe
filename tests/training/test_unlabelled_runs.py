"""Runs on training samples without labels: those of an objective that needs none, and refused for all others."""

import pytest

from tpkd.config.loading import ConfigError
from tpkd.errors import InputError
from tpkd.mechanism.bench import open_bench
from tpkd.objectives import create, names
from tpkd.teacher import caching
from tpkd.training.loop import train
from tpkd.training.run import assemble, check_names, start_accelerator
from training.equality import assert_same_run, metrics_of
from training.tiny import SETTINGS, make_config

FREE = [name for name in names() if "labels" not in create(name, **SETTINGS.get(name, {})).needs]
UNLABELLED = {"name": "digits", "unlabelled": True}


def bare_config(directory, overrides=("teacher.cache=null",), **changes):
    return make_config(directory, overrides, **({"data": UNLABELLED, "objective": "kl-dist"} | changes))


def losses_of(directory):
    return [line["loss"] for line in metrics_of(directory) if line["kind"] == "epoch"]


def test_some_objectives_need_no_labels():
    assert FREE == ["kl-dist", "dp-u"]


@pytest.mark.parametrize("name", FREE)
def test_a_student_without_labels_is_the_one_with_labels(tmp_path, name):
    config = bare_config(tmp_path, objective=name)
    bare = train(config, tmp_path / "bare")
    whole = train(bare_config(tmp_path, data={"name": "digits"}, objective=name), tmp_path / "whole")
    assert bare.student_fingerprint == whole.student_fingerprint
    assert bare.accuracy == whole.accuracy > 0
    assert bare.data_fingerprint != whole.data_fingerprint
    assert losses_of(tmp_path / "bare") == losses_of(tmp_path / "whole")
    assert losses_of(tmp_path / "bare")[-1] < losses_of(tmp_path / "bare")[0]


def test_a_run_continues_bit_for_bit_and_does_not_look_at_labels(tmp_path):
    class InterruptedRunError(Exception):
        pass

    def interrupt(report):
        if report.step == 6:
            raise InterruptedRunError

    config = bare_config(tmp_path)
    train(config, tmp_path / "whole")
    with pytest.raises(InterruptedRunError):
        train(config, tmp_path / "parts", on_step=interrupt)
    train(config, tmp_path / "parts", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    assert not [line for line in metrics_of(tmp_path / "whole") if line["kind"] == "monitor"]
    log = (tmp_path / "whole" / "run.log").read_text()
    assert "digits: training samples have no labels, so the monitor is off" in log


def test_images_without_labels_are_mixed(tmp_path):
    views = {"num_views": 8, "pad": 1, "scale": 16, "mixup": 0.4, "cutmix": 1.0}
    bare = train(bare_config(tmp_path, views=views), tmp_path / "bare")
    whole = train(bare_config(tmp_path, data={"name": "digits"}, views=views), tmp_path / "whole")
    assert bare.student_fingerprint == whole.student_fingerprint


def test_a_cache_of_samples_without_labels(tmp_path):
    notes = []
    config = bare_config(tmp_path, ())
    caching.build(config, on_note=notes.append)
    assert len([note for note in notes if "of 100 test samples" in note]) == 1  # as many as evaluation.limit
    assert not [note for note in notes if "training samples" in note or "cached rows" in note]
    assert caching.verify(config.teacher.cache, config).passes
    assert train(config, tmp_path / "run").accuracy > 0


@pytest.mark.parametrize("name", [name for name in names() if name not in FREE])
def test_an_objective_of_labels_is_refused_with_those_that_need_none(tmp_path, name):
    config = bare_config(tmp_path, objective={"name": name, "settings": SETTINGS.get(name, {})})
    problem = rf"^data\.unlabelled: expected false: objective '{name}' learns from labels; .*: kl-dist, dp-u$"
    with pytest.raises(ConfigError, match=problem):
        check_names(config)


def test_a_probe_is_fitted_to_labels(tmp_path):
    student = {"model": "builtin:mlp", "options": {"input_size": 64, "hidden": [16]}, "head": "probe"}
    config = bare_config(tmp_path, ["teacher.cache=null", "teacher.layers=[]"], student=student)
    with pytest.raises(ConfigError, match=r"^student: head: expected own or random, or a probe_file"):
        assemble(config, start_accelerator(config), tmp_path)


def test_a_study_looks_at_labels(tmp_path):
    with pytest.raises(InputError, match=r"^data\.unlabelled: expected false: a study looks at"):
        open_bench(bare_config(tmp_path, snapshots=[1]))
