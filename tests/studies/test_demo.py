import numpy as np
import pytest
import torch

from tpkd.files import InputError
from tpkd.studies.demo import METHODS, demo_files, load_digits, multilayer_perceptron, run_demo, write_logits


@pytest.fixture(scope="module")
def result():
    return run_demo(lambda name, epoch, epochs: None)


def test_teacher_and_students_learn(result):
    assert result.accuracy(result.teacher_logits) >= 0.95
    assert tuple(result.student_logits) == METHODS
    for method, logits in result.student_logits.items():
        assert result.accuracy(logits) >= 0.85, method


def test_methods_differ_and_start_alike(result):
    students = list(result.student_logits.values())
    assert not torch.equal(students[0], students[1])
    assert not torch.equal(students[0], students[2])
    first, second = multilayer_perceptron((4, 3), seed=1), multilayer_perceptron((4, 3), seed=1)
    assert torch.equal(first[0].weight, second[0].weight)


def test_the_held_out_split_is_disjoint_stratified_and_fixed():
    digits, again = load_digits(), load_digits()
    assert torch.equal(digits.held_out_inputs, again.held_out_inputs)
    assert len(digits.train_labels) + len(digits.held_out_labels) == 1797
    train = {tuple(row) for row in digits.train_inputs.tolist()}
    assert not any(tuple(row) in train for row in digits.held_out_inputs.tolist())
    shares = torch.bincount(digits.held_out_labels) / torch.bincount(digits.train_labels)
    assert shares.max() - shares.min() < 0.03


def test_files_hold_the_logits_and_foreign_directories_are_left_alone(result, tmp_path):
    files = demo_files(tmp_path / "new")
    write_logits(result, files)
    assert np.array_equal(np.load(files.teacher), result.teacher_logits.numpy())
    assert np.array_equal(np.load(files.students[2]), result.student_logits["tpkd"].numpy())
    demo_files(tmp_path / "new")
    (tmp_path / "new" / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="expected a new directory"):
        demo_files(tmp_path / "new")
