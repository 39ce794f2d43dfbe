"""The teacher's term is named, and a claim about it is held to."""

import pytest

from check_loss.examination import examine, finding, outcome
from tpkd.check_loss.subject import Claims


@pytest.mark.parametrize(
    ("loss", "divergence"),
    [("textbook", "kl"), ("reverse", "reverse-kl"), ("logit_matching", "mse-logits"), ("soft_cross_entropy", "kl")],
)
def test_the_teachers_term_is_recognised(loss, divergence):
    assert finding(examine(f"sound.{loss}"), "teacher's term").finding == divergence
    assert outcome(examine(f"sound.{loss}", (), Claims(divergence=divergence)), "teacher's term") == "pass"
