"""The inputs of the battery are those that a reproduction makes, and what is the same is told from what is not."""

import torch

from tpkd.check_loss.scene import INPUTS, close, input_text, ordinary_scene, scale_between


def test_the_inputs_of_a_reproduction_are_those_of_the_battery():
    names: dict[str, torch.Tensor] = {}
    exec(f"import torch; {INPUTS}", names)
    first, second = ordinary_scene(), ordinary_scene(teacher=1)
    pairs = {"s": first.student, "t": first.teacher, "u": second.teacher, "y": first.labels}
    assert all(torch.equal(names[name], tensor) for name, tensor in pairs.items())


def test_the_inputs_of_two_classes_too():
    names: dict[str, torch.Tensor] = {}
    exec(f"import torch; {input_text(classes=2)}", names)
    assert torch.equal(names["s"], ordinary_scene(classes=2).student)
    assert torch.equal(names["y"], ordinary_scene(classes=2).labels)


def test_nan_is_close_to_nothing_and_a_multiple_has_its_factor():
    nan, one = torch.full((2,), torch.nan), torch.ones(2)
    assert not close(nan, nan)
    assert close(one, one + 1e-6)
    assert not close(one, one + 1e-4)
    assert scale_between(3 * one, one) == 3
    assert scale_between(one, 0 * one) is None
