"""Class names in diagnoses, grids and reports."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from diagnosis.files_of import write_files
from tpkd.compare.grid import plan_grid
from tpkd.compare.reporting import read_records
from tpkd.compare.run import RECORD_NAME, compare
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.run import diagnose_files
from tpkd.errors import InputError
from tpkd.training.loop import train
from training.named import NAMES, config_of, plain_config, taught_by, write_images, write_weights

SIX = ["a", "b", "c", "d", "e", "f"]
SWAPPED = ["b", "a", "c", "d", "e", "f"]


def named(directory, file, array, names):
    path = directory / file
    save_file({"logits": torch.from_numpy(array)}, path, metadata={"class_names": json.dumps(names)})
    return path


def test_recorded_names_are_shown(tmp_path):
    files = write_files(tmp_path)
    student = named(tmp_path, "s.safetensors", files.z, SIX)
    record = diagnose_files(open_inputs([student], files.teacher, files.labels))
    assert [state.name for state in record.students[0].classes] == SIX
    assert record.class_names == tuple(SIX)
    assert json.loads(record.to_json())["class_names"] == SIX


def test_a_student_and_a_teacher_of_another_order_are_refused(tmp_path):
    files = write_files(tmp_path)
    student, teacher = (
        named(tmp_path, "s.safetensors", files.z, SIX),
        named(tmp_path, "t.safetensors", files.zt, SWAPPED),
    )
    with pytest.raises(
        InputError, match=r"s.safetensors: class 0: expected 'b' as in \S+t.safetensors, found 'a': the same"
    ):
        open_inputs([student], teacher, files.labels)


def test_given_names_are_compared_with_recorded_ones(tmp_path):
    files = write_files(tmp_path)
    (tmp_path / "names.txt").write_text("\n".join(SWAPPED))
    teacher = named(tmp_path, "t.safetensors", files.zt, SIX)
    with pytest.raises(
        InputError, match=r"names.txt: class 0: expected 'a' as in \S+t.safetensors, found 'b': the same"
    ):
        open_inputs([files.student], teacher, files.labels, class_names=tmp_path / "names.txt")


def test_names_come_from_many_kinds_of_file(tmp_path):
    files = write_files(tmp_path)
    (tmp_path / "config.json").write_text(
        json.dumps({"id2label": {str(place): name for place, name in enumerate(SIX)}})
    )
    weights = named(tmp_path, "w.safetensors", files.z, SIX)
    for path in (tmp_path / "config.json", weights):
        assert open_inputs([files.student], files.teacher, files.labels, class_names=path).class_names == tuple(SIX)
    (tmp_path / "names.txt").write_text("a\n\nc\nd\ne\nf\n")
    with pytest.raises(InputError, match=r"names.txt: line 2: expected a name, found an empty line"):
        open_inputs([files.student], files.teacher, files.labels, class_names=tmp_path / "names.txt")


def write_config(place, weights):
    path = place / "grid.yaml"
    path.write_text(json.dumps(plain_config(place, teacher=taught_by(weights))))
    return path


@pytest.fixture
def place(tmp_path):
    write_images(tmp_path / "photos")
    return tmp_path


def test_a_grid_records_its_classes_and_refuses_others(place):
    path = write_config(place, write_weights(place / "t.safetensors", NAMES))
    grid = plan_grid(path, methods=["ce"], seeds=[42])
    record = compare(grid, processes=1)
    directory = place / "runs"
    assert record.data.class_names == NAMES
    assert json.loads((directory / RECORD_NAME).read_text())["data"]["class_names"] == list(NAMES)
    diagnosis = json.loads((directory / "students" / "ce-42.json").read_text())
    assert [state["name"] for state in diagnosis["students"][0]["classes"]] == list(NAMES)
    assert read_records(directory).diagnosis.class_names == NAMES

    diagnosis["class_names"] = ["dog", "cat", "horse"]
    (directory / "students" / "ce-42.json").write_text(json.dumps(diagnosis))
    with pytest.raises(InputError, match=r"ce-42.json: class 0: expected 'cat' as in \S+comparison.json, found 'dog'"):
        read_records(directory)

    result = json.loads((directory / "ce-42" / "result.json").read_text())
    result["class_names"] = ["dog", "cat", "horse"]
    (directory / "ce-42" / "result.json").write_text(json.dumps(result))
    with pytest.raises(
        InputError, match=r"result.json: class 0: expected 'cat' as in \S+photos, found 'dog'.*--restart"
    ):
        compare(grid, processes=1)


def test_a_single_run_with_a_diagnosis_of_other_classes_is_not_reported(place):
    train(config_of(place))
    run = place / "runs" / "ce-42"
    files = write_files(place)
    np.save(files.labels, files.y % 3)
    (run / "students").mkdir()
    inputs = open_inputs(
        [named(place, "s.safetensors", files.z[:, :3].copy(), ["x", "y", "z"])],
        named(place, "t.safetensors", files.zt[:, :3].copy(), ["x", "y", "z"]),
        files.labels,
    )
    (run / "students" / "ce-42.json").write_text(diagnose_files(inputs).to_json())
    with pytest.raises(InputError, match=r"class 0: expected 'cat' .* found 'x'"):
        read_records(run)
