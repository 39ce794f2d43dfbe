"""Masks that are forgotten are found, and our own loss keeps them."""

import pytest

from check_loss.examination import examine, outcome
from tpkd.check_loss.examination import check_loss
from tpkd.check_loss.target import find_loss


@pytest.mark.parametrize(
    ("loss", "check"),
    [
        ("mask_forgotten", "ignored labels"),
        ("count_forgotten", "masked accumulation"),
        ("nan_when_all_ignored", "nothing valid"),
    ],
)
def test_the_fault_is_found_and_a_sound_loss_passes(loss, check):
    assert outcome(examine(f"faulty.{loss}"), check) == "fail"
    assert outcome(check_loss(find_loss("tpkd:kd_loss")), check) == "pass"
