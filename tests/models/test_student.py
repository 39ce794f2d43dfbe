"""The student of a configuration at its start."""

import torch

from tpkd.class_names import recorded_names
from tpkd.data.configured import load_data
from tpkd.models.classifier import extract_features
from tpkd.models.heads import fit_probe
from tpkd.models.student import PROBE_NAME, build_student
from tpkd.models.weights import weights_fingerprint
from training.tiny import make_config


def test_its_start_depends_on_its_own_seed_and_on_no_other(tmp_path):
    def start(*overrides, state=0):
        torch.manual_seed(state)
        config = make_config(tmp_path, ["student.layers=[]", *overrides], teacher=None, objective="ce")
        return weights_fingerprint(build_student(config, load_data(config, "train")))

    assert start() == start("seed=7", "limit=20", "epochs=9", state=1)
    assert start() != start("student.seed=1")


def test_a_probe_is_kept_and_read_back_to_the_bit(tmp_path):
    config = make_config(tmp_path, ["student.layers=[]", "student.head=probe"], teacher=None, objective="ce")
    data = load_data(config, "train")
    first = build_student(config, data, directory=tmp_path)
    assert recorded_names(tmp_path / PROBE_NAME) == data.class_names
    features = extract_features(first, [torch.from_numpy(data.inputs).flatten(1) / 16])
    expected = fit_probe(features, torch.from_numpy(data.labels), data.num_classes, C=0.01)
    torch.testing.assert_close(first.classifier.weight.data, expected.weight.data)
    again = build_student(config, data.subset(range(10)), directory=tmp_path)  # too few samples to fit one
    assert weights_fingerprint(again) == weights_fingerprint(first)


def test_a_probe_of_a_residual_network_is_fitted_to_its_inputs_alone(tmp_path):
    plain = {"model": "builtin:mlp", "head": "probe", "layers": []}
    students = []
    for options in ({"hidden": []}, {"hidden": [8], "residual": True}):
        config = make_config(tmp_path, student=plain | {"options": options}, teacher=None, objective="ce")
        students.append(build_student(config, load_data(config, "train")))
    linear, residual = (student.classifier.weight.data for student in students)
    torch.testing.assert_close(residual[:, : linear.shape[1]], linear)
    assert residual.shape[1] == linear.shape[1] + 8
    assert residual[:, linear.shape[1] :].count_nonzero() == 0
