import pytest
import torch

from tpkd.data.class_map import ClassMap
from tpkd.errors import InputError

TEACHER = ("ant", "bee", "cat", "dog", "eel")


def test_every_student_class_gets_the_logit_of_its_name():
    student = ("dog", "ant", "house cat")
    class_map = ClassMap.from_names(TEACHER, student, {"cat": "house cat"})
    logits = torch.randn(4, 2, 5, dtype=torch.float64)
    mapped = class_map.apply(logits)
    assert mapped.dtype == torch.float64
    for column, name in enumerate(["dog", "ant", "cat"]):
        assert torch.equal(mapped[..., column], logits[..., TEACHER.index(name)])
    assert not class_map.is_identity


def test_a_subset_is_the_conditional_distribution():
    class_map = ClassMap.from_names(TEACHER, ("bee", "eel"))
    logits = torch.randn(100, 5, dtype=torch.float64)
    probs = logits.softmax(-1)[:, [1, 4]]
    assert torch.allclose(class_map.apply(logits).softmax(-1), probs / probs.sum(-1, keepdim=True), rtol=1e-13)


def test_the_same_names_leave_the_logits_alone():
    class_map = ClassMap.from_names(TEACHER, TEACHER)
    logits = torch.randn(3, 5)
    assert class_map.is_identity
    assert class_map.apply(logits) is logits


def test_two_classes_may_exchange_their_names():
    class_map = ClassMap.from_names(("a", "b"), ("a", "b"), {"a": "b", "b": "a"})
    assert class_map.teacher_classes == (1, 0)


def test_what_a_cache_binds_is_plain_and_tells_maps_apart():
    class_map = ClassMap.from_names(TEACHER, ("dog", "ant"))
    assert class_map.to_dict() == {
        "teacher_names": list(TEACHER),
        "student_names": ["dog", "ant"],
        "teacher_classes": [3, 0],
    }
    assert class_map.to_dict() != ClassMap.from_names(TEACHER, ("ant", "dog")).to_dict()


@pytest.mark.parametrize(
    ("teacher", "student", "rename", "message"),
    [
        (TEACHER, ("ant", "fox", "gnu"), {}, "no teacher class for the student's 'fox' and 1 more"),
        (TEACHER, ("ant", "bee"), {"fly": "bee"}, "rename: the teacher has no class 'fly'"),
        (TEACHER, ("ant", "bee"), {"cat": "fly"}, "rename: the student has no class 'fly'"),
        (TEACHER, ("ant", "bee"), {"cat": "bee"}, "two teacher classes for the student's 'bee'"),
        (("a", "b", "a"), ("a", "b"), {}, "the teacher has two classes named 'a'"),
        (("a", "b"), ("a", "b", "b"), {}, "the student has two classes named 'b'"),
    ],
)
def test_maps_that_do_not_fit_are_refused_by_name(teacher, student, rename, message):
    with pytest.raises(InputError, match=f"class map: {message}"):
        ClassMap.from_names(teacher, student, rename)


def test_logits_of_another_width_are_refused():
    with pytest.raises(ValueError, match="teacher_logits: expected 5 classes, got 4"):
        ClassMap.from_names(TEACHER, ("ant",)).apply(torch.zeros(2, 4))
