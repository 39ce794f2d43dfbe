"""What several checks need to know about a loss."""

import pytest

from tpkd.check_loss.scene import ordinary_scene
from tpkd.check_loss.subject import Claims, NoGraphError, RefusedError, Subject
from tpkd.check_loss.target import find_loss


def of(name, settings=(), **claims):
    return Subject(find_loss(name, settings=settings), Claims(**claims))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_reduction_is_found_by_experiment(reduction):
    assert of("tpkd:kd_loss", [f"reduction={reduction}"]).reduction == reduction


def test_the_label_of_a_mask_is_what_the_user_says_then_what_the_signature_says():
    assert of("tpkd:kd_loss").mask == -100
    assert of("tpkd:kd_loss", ["ignore_index=3"]).mask == 3
    assert of("tpkd:kd_loss", ignore_index=7).mask == 7
    assert of("check_loss.sound:textbook").mask is None


def test_what_is_not_a_loss_is_refused(monkeypatch):
    subject = of("tpkd:kd_loss")
    monkeypatch.setattr(type(subject.loss), "__call__", lambda self, tensors, **options: {"loss": 1})
    with pytest.raises(RefusedError, match="returned dict with loss, not a floating tensor"):
        subject.call(ordinary_scene())
    monkeypatch.setattr(type(subject.loss), "__call__", lambda self, tensors, **options: tensors["student"].detach())
    with pytest.raises(NoGraphError, match="returned a constant"):
        subject.evaluate(ordinary_scene())
