"""Names of another code base become ours by whole parts, the longest match first."""

import pytest

from tpkd.errors import InputError
from tpkd.models.renaming import closest_map, name_mismatch, rename, rename_all


@pytest.mark.parametrize(
    ("name", "weight_map", "expected"),
    [
        ("head.weight", {}, "head.weight"),
        ("head.weight", {"head": "fc"}, "fc.weight"),
        ("head.weight", {"head.": "fc."}, "fc.weight"),
        ("head.weight", {"head.weight": "fc.kernel"}, "fc.kernel"),
        ("header.weight", {"head": "fc"}, "header.weight"),
        ("body.head.weight", {"head": "fc"}, "body.head.weight"),
        ("body.head.weight", {"body": ""}, "head.weight"),
        ("body.head.weight", {"body": "", "body.head": "fc"}, "fc.weight"),
        ("conv.weight", {"": "network"}, "network.conv.weight"),
        ("conv.weight", {"": "network", "conv": "stem"}, "stem.weight"),
        ("aux.weight", {"aux": None}, None),
        ("body.aux.weight", {"body": "", "body.aux.": None}, None),
    ],
)
def test_whole_parts_of_a_name_are_replaced(name, weight_map, expected):
    assert rename(name, weight_map) == expected


def test_what_is_left_out_needs_no_place():
    assert rename_all(["a.w", "b.w", "c.w"], {"a": "b", "b": None}) == {"b.w": "a.w", "c.w": "c.w"}
    with pytest.raises(InputError, match=r"found a\.w and b\.w both as 'b\.w'"):
        rename_all(["a.w", "b.w"], {"a": "b"})


def test_only_tensors_of_the_same_shape_are_close():
    assert closest_map({"fc.weight": (5, 6)}, {"fc.kernel": (6, 5), "top.weight": (5, 6)}) == {"top": "fc"}
    assert closest_map({"fc.weight": (5, 6)}, {"fc.kernel": (6, 5)}) == {}


def test_a_prefix_that_ours_lack_is_mapped_to_nothing():
    ours = {"layer1.0.conv1.weight": (4, 4), "layer1.0.conv2.weight": (4, 4), "fc.weight": (3, 4)}
    theirs = {f"backbone.{name}": shape for name, shape in ours.items()}
    found = closest_map(ours, theirs)
    assert found == {"backbone": ""}
    assert rename_all(theirs, found).keys() == ours.keys()
    assert "weight_map: {backbone: ''}" in name_mismatch(ours, theirs, {}, {name: name for name in theirs})


def test_nothing_is_wrong_with_equal_names():
    assert name_mismatch({"a": (1,)}, {"a": (2,)}, {"unused": "b"}, {"a": "a"}) is None
