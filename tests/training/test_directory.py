import pytest
import torch
import yaml

from tpkd.errors import InputError
from tpkd.training.directory import CONFIG_NAME, ENVIRONMENT_NAME, bind, changes_since, environment, held
from training.tiny import make_config


@pytest.fixture
def place(tmp_path):
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def test_a_directory_is_bound_to_one_configuration_but_for_what_changes_no_number(place, tmp_path):
    config = make_config(tmp_path)
    assert bind(place, config) is None
    assert bind(place, make_config(tmp_path, ["workers=1"])) is None
    (place / "result.json").write_text("{}")
    with pytest.raises(InputError, match="another configuration: seed: expected 42, found 7"):
        bind(place, make_config(tmp_path, ["seed=7"]))


def test_a_run_that_was_started_before_a_key_existed_goes_on(place, tmp_path):
    config = make_config(tmp_path)
    bind(place, config)
    data = yaml.safe_load((place / CONFIG_NAME).read_text())
    for section, key in (("optimizer", "nesterov"), ("optimizer", "layer_decay"), ("schedule", "warmup")):
        del data[section][key]
    del data["tracking"]
    (place / CONFIG_NAME).write_text(yaml.safe_dump(data | {"tensorboard": True}))
    (place / "result.json").write_text("{}")
    assert bind(place, config) is None
    assert bind(place, make_config(tmp_path, tensorboard=None, tracking=["wandb"])) is None
    with pytest.raises(InputError, match=r"optimizer\.layer_decay: expected None, found 0\.5$"):
        bind(place, make_config(tmp_path, ["optimizer.layer_decay=0.5"]))


def test_a_run_without_progress_is_put_aside_whole(place, tmp_path):
    bind(place, make_config(tmp_path))
    (place / "run.log").write_text("started")
    for name in ("wandb", "mlflow", "tensorboard"):
        (place / name).mkdir()
    (place / "tracking.json").write_text("{}")
    (place / "notes.txt").write_text("mine")
    aside = bind(place, make_config(tmp_path, ["seed=7"]))
    assert aside == place / "abandoned-1"
    assert sorted(path.name for path in aside.iterdir()) == sorted(
        [CONFIG_NAME, "run.log", "wandb", "mlflow", "tensorboard", "tracking.json"]
    )
    assert (place / "notes.txt").read_text() == "mine"


def test_files_of_another_origin_are_refused(place, tmp_path):
    (place / "thesis.tex").touch()
    with pytest.raises(InputError, match=r"expected an empty directory or a run, found thesis\.tex"):
        bind(place, make_config(tmp_path))


def test_a_hold_sees_that_its_directory_was_moved(tmp_path):
    place = tmp_path / "run"
    with held(place, main=True) as hold:
        hold.check()
        place.rename(tmp_path / "elsewhere")
        with pytest.raises(InputError, match="moved, removed or replaced while a run was writing there"):
            hold.check()
    with held(place, main=False) as other:
        other.check()  # leaves it to the first process


def test_what_changed_since_the_last_start_is_named(tmp_path):
    now = environment(torch.device("cpu"), 2)
    assert changes_since(tmp_path, now) == []
    (tmp_path / ENVIRONMENT_NAME).write_text(environment(torch.device("cpu"), 1).to_json())
    assert changes_since(tmp_path, now) == ["processes 1 -> 2"]
    (tmp_path / ENVIRONMENT_NAME).write_text("{")
    assert changes_since(tmp_path, now) == ["environment.json could not be read"]
