"""Arguments are found by name, by word of the user, by order; what cannot be told is refused in one line."""

import sys
import types

import pytest
import torch

from tpkd.check_loss.examination import check_loss
from tpkd.check_loss.target import find_loss
from tpkd.errors import InputError


@pytest.fixture
def module(monkeypatch):
    """A module `somebody` made of source text."""

    def make(source):
        made = types.ModuleType("somebody")
        exec(source, made.__dict__)
        monkeypatch.setitem(sys.modules, "somebody", made)
        return made

    return make


@pytest.mark.parametrize(
    ("signature", "roles"),
    [
        ("logits_student, logits_teacher, target, alpha=1, temperature=4.", {"labels": "target"}),
        ("preds_S, preds_T, gt_labels, tau=1.", {"student": "preds_S", "temperature": "tau"}),
        ("logits_S, logits_T, temperature=1", {"teacher": "logits_T"}),
        ("y_pred_student, y_pred_teacher, y_true, temp=20.", {"labels": "y_true", "temperature": "temp"}),
        ("z_s, z_t, y, T=4.", {"student": "z_s", "teacher": "z_t", "labels": "y", "temperature": "T"}),
        ("s, t, y", {"student": "s", "teacher": "t"}),
        ("outputs, labels, teacher_outputs, kd_T=3.", {"student": "outputs", "temperature": "kd_T"}),
        ("a, b, labels=None", {"student": "a", "teacher": "b", "labels": "labels"}),
        ("student_logits, labels", {"student": "student_logits", "labels": "labels"}),
        ("*tensors", {"student": None, "teacher": None, "labels": None}),
        ("student, teacher, student_temperature=1., num_items_in_batch=None", {"num_items": "num_items_in_batch"}),
    ],
)
def test_roles_by_name_and_order(module, signature, roles):
    module(f"def loss({signature}): pass")
    found = find_loss("somebody:loss").names
    assert {role: found[role] for role in roles} == roles
    assert ("temperature" in found) == ("temperature" in roles or "temperature=" in signature.replace("_temp", ""))


def test_a_role_by_word_of_the_user(module):
    module("def loss(first, second, third, fourth): pass")
    arguments = ["student=third", "teacher=first", "labels=second"]
    loss = find_loss("somebody:loss", arguments=arguments, settings=["fourth=0.5"])
    assert loss.text() == "loss(third=s, first=t, second=y, fourth=0.5)"


def test_a_role_left_out(module):
    module("def loss(student, teacher, labels=None): pass")
    assert not find_loss("somebody:loss", arguments=["labels=none"]).has("labels")


def test_settings_of_a_class_go_to_its_constructor_or_to_its_call(module):
    module(
        "class Loss:\n"
        "  def __init__(self, tau=2.0, kind='a'): self.tau, self.kind = tau, kind\n"
        "  def __call__(self, student, teacher, *, weight=1.0): return self.tau, self.kind, weight"
    )
    loss = find_loss("somebody:Loss", settings=["kind=b", "weight=3"])
    assert loss.text(temperature=8.0) == 'Loss(kind="b", tau=8.0)(student=s, teacher=t, weight=3)'
    tensors = dict.fromkeys(("student", "teacher"), torch.zeros(1))
    assert loss(tensors, temperature=8.0) == (8.0, "b", 3)
    assert loss.temperature == 2.0


def test_instances_and_what_lies_deeper(module):
    made = module("class Holder:\n  @staticmethod\n  def loss(student, teacher): return student.sum() + teacher.sum()")
    made.instance = torch.nn.KLDivLoss()
    assert find_loss("somebody:Holder.loss").statement == "from somebody import Holder"
    loss = find_loss("somebody:instance", arguments=["student=input", "teacher=target"])
    assert loss.text() == "instance(input=s, target=t)"


@pytest.mark.parametrize(
    ("output", "result"), [("loss", "{'loss': x}"), ("1", "(0, x)"), (".loss", "types.SimpleNamespace(loss=x)")]
)
def test_the_loss_in_what_is_returned(module, output, result):
    value = "x = (student - teacher).square().sum(1).mean()"
    module(f"import types\ndef loss(student, teacher):\n  {value}\n  return {result}")
    assert check_loss(find_loss("somebody:loss", output=output)).failures == ()
    (failure,) = check_loss(find_loss("somebody:loss")).failures
    assert "--output" in failure.finding


def test_probabilities_are_softened_by_the_temperature_of_the_call(module):
    module(
        "def loss(log_probs_s, probs_t, temperature=2.0):\n"
        "  return -temperature**2 * (probs_t * log_probs_s).sum(1).mean()"
    )
    record = check_loss(find_loss("somebody:loss"))
    assert record.failures == ()
    assert "loss(log_probs_s=(s/2.0).log_softmax(1), probs_t=(t/2.0).softmax(1))" in record.call
    assert check_loss(find_loss("somebody:loss", forms={"teacher": "logits"})).failures


@pytest.mark.parametrize(
    ("origin", "options", "words"),
    [
        ("somebody", {}, ["package.module:function"]),
        ("somebody:los", {}, ["no los", "did you mean loss?"]),
        ("torch.nn.functionl:kl_div", {}, ["torch.nn.functionl", "did you mean functional?"]),
        ("nowhere_at_all:loss", {}, ["no module named nowhere_at_all"]),
        ("somebody.deeper:loss", {}, ["no module named somebody.deeper"]),
        ("somebody.py:loss", {}, ["expected a module, not a file", "say somebody:function"]),
        ("./losses/somebody.py:loss", {}, ["say somebody:function in the directory of somebody.py"]),
        ("somebody:number", {}, ["expected a function or a class", "float"]),
        ("somebody:loss", {"settings": ["alfa=1"]}, ["alfa", "did you mean alpha?"]),
        ("somebody:loss", {"settings": ["alpha"]}, ["--set alpha", "KEY=VALUE"]),
        ("somebody:loss", {"arguments": ["studnt=student"]}, ["studnt", "did you mean student?"]),
        ("somebody:loss", {"arguments": ["student=studnt"]}, ["studnt", "did you mean student?"]),
        ("somebody:needy", {}, ["gamma has no default", "--set gamma=VALUE"]),
        ("torch.nn.functional:kl_div", {}, ["input, target", "--argument"]),
        ("somebody:lonely", {}, ["cannot tell student and teacher", "weight"]),
    ],
)
def test_what_cannot_be_told_is_one_line(module, origin, options, words):
    module(
        "number = 1.0\n"
        "def loss(student, teacher, alpha=0.5): pass\n"
        "def needy(student, teacher, gamma): pass\n"
        "def lonely(weight): pass"
    )
    with pytest.raises(InputError) as caught:
        find_loss(origin, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_a_module_that_fails_on_import_is_named(tmp_path, monkeypatch):
    (tmp_path / "broken_losses.py").write_text("raise OSError('no such cluster')")
    (tmp_path / "needs_more.py").write_text("import not_installed_anywhere")
    (tmp_path / "script.py").write_text("raise SystemExit(2)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="broken_losses: cannot be imported: OSError: no such cluster"):
        find_loss("broken_losses:loss")
    with pytest.raises(InputError, match="script: cannot be imported: SystemExit: 2"):
        find_loss("script:loss")
    with pytest.raises(InputError, match="not_installed_anywhere is not installed"):
        find_loss("needs_more:loss")
