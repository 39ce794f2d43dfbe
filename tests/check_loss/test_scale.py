"""Wrong sizes are found, and the textbook loss has none."""

import pytest

from check_loss.examination import examine, outcome


@pytest.mark.parametrize(
    ("loss", "check"),
    [("scale_forgotten", "scaled loss"), ("no_t_squared", "T squared"), ("MeanOverClasses", "number of classes")],
)
def test_the_fault_is_found_and_a_sound_loss_passes(loss, check):
    assert outcome(examine(f"faulty.{loss}"), check) == "fail"
    assert outcome(examine("sound.textbook"), check) == "pass"
