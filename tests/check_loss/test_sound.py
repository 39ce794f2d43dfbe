"""Nothing is found in our own losses, nor in textbook ones whatever they choose; choices are told apart."""

import inspect

import pytest

import tpkd.objectives
from check_loss import sound
from check_loss.examination import examine, finding, outcome, run, shows_a_fault
from tpkd.check_loss.examination import check_loss
from tpkd.check_loss.target import find_loss

OTHER_INPUTS = {"dp_loss", "linear_tpkd_loss", "linear_top_k_tpkd_loss", "top_k_tpkd_loss", "top_k_kd_loss"}
"""They take a third network's logits, features, or what is left of a teacher's (see `objective_truncated`)."""
PUBLIC = sorted(
    name for name in tpkd.objectives.__all__ if name.endswith(("_loss", "Loss")) and name not in OTHER_INPUTS
)
OBJECTIVES = sorted(name for name in vars(sound) if name.startswith("objective_"))


@pytest.mark.parametrize("name", PUBLIC)
def test_our_public_losses_have_no_fault(name):
    record = check_loss(find_loss(f"tpkd.objectives:{name}"))
    assert record.failures == ()
    assert outcome(record, "nothing valid") == outcome(record, "NaN under a mask") == "pass"
    assert outcome(record, "masked accumulation") == outcome(record, "dense shapes") == "pass"


def test_every_public_loss_of_logits_and_labels_is_examined():
    for name in tpkd.objectives.__all__:
        value = getattr(tpkd.objectives, name)
        if inspect.isfunction(value) and {"student_logits", "reduction"} <= inspect.signature(value).parameters.keys():
            assert name in PUBLIC or name in OTHER_INPUTS, name


@pytest.mark.parametrize("name", OBJECTIVES)
def test_our_objectives_have_no_fault(name):
    record = examine(f"sound.{name}")
    assert record.failures == ()
    assert outcome(record, "accumulation") == outcome(record, "class names") == "pass"


def test_a_prescribed_gradient_is_believed_only_from_a_loss_that_says_so():
    ours = finding(check_loss(find_loss("tpkd:tpkd_loss")), "gradient")
    assert ours.outcome == "note"
    assert "not the derivative" in ours.finding
    assert outcome(examine("faulty.gradient_off"), "gradient") == "fail"


CHOICES = {
    "textbook": {"reduction": "pass", "T squared": "pass", "ignored labels": "note", "teacher's term": "note"},
    "smoothed": {"student = teacher": "note", "accumulation": "pass"},
    "soft_cross_entropy": {"student = teacher": "note", "dense shapes": "note"},
    "summed": {"reduction": "note", "accumulation": "pass"},
    "one_a_sample": {"reduction": "note", "accumulation": "pass"},
    "reverse": {"student = teacher": "pass"},
    "logit_matching": {"constant in the logits": "note", "student = teacher": "pass"},
    "noisy": {"repeatable": "note", "inputs": "pass"},
    "Remembering": {"repeatable": "note", "certainty in float32": "pass"},
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_is_no_failure(name):
    record = examine(f"sound.{name}")
    assert record.failures == ()
    assert {check: outcome(record, check) for check in CHOICES[name]} == CHOICES[name]


def test_a_reproduction_can_show_that_nothing_is_wrong():
    """The judge of the reproductions tells both answers apart."""
    assert shows_a_fault("found 0.5 expected 1.0")
    assert shows_a_fault("found nan 0.0 expected finite numbers")
    assert not shows_a_fault("found 0.99999 expected 1.0")
    assert not shows_a_fault(run('python -c \'print("found",3.0,1.0,"expected","finite numbers")\''))
