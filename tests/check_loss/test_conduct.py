"""What a loss does beside its number is seen, and the textbook loss does nothing."""

import pytest

from check_loss.examination import examine, outcome


@pytest.mark.parametrize(("loss", "check"), [("overwrites", "inputs"), ("needs_contiguous", "views in memory")])
def test_the_fault_is_found_and_a_sound_loss_passes(loss, check):
    assert outcome(examine(f"faulty.{loss}"), check) == "fail"
    assert outcome(examine("sound.textbook"), check) == "pass"
