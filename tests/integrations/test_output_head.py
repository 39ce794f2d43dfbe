"""Losses from the features of an output head equal those of its logits, and hold few of them."""

import pytest
import torch
from benchmarks.memory import peak_bytes
from torch import nn
from torch.nn.functional import cross_entropy

from tpkd.errors import InputError
from tpkd.integrations import output_head as module
from tpkd.integrations.output_head import (
    feature_cross_entropy,
    feature_loss,
    feature_top_k,
    head_computes,
    marked_logits,
    output_head,
    row_chunks,
    same_values,
)
from tpkd.objectives.tpkd import TPKD
from tpkd.teacher.cache.truncation import truncate

ROWS, WIDTH, CLASSES = 14, 6, 30


@pytest.fixture
def case(monkeypatch):
    """A head, features of two texts, targets of which some are ignored; three rows a chunk."""
    monkeypatch.setattr(module, "CHUNK_LOGITS", 3 * CLASSES)
    torch.manual_seed(0)
    targets = torch.randint(CLASSES, (2, 7))
    targets[0, -1] = targets[1, 2] = -100
    return nn.Linear(WIDTH, CLASSES), torch.randn(2, 7, WIDTH), targets


def test_the_cross_entropy_of_an_evaluation(case):
    head, features, targets = case
    expected = cross_entropy(head(features).flatten(0, 1), targets.flatten())
    torch.testing.assert_close(feature_cross_entropy(features, head, targets), expected.detach())
    assert feature_cross_entropy(features, head, torch.full_like(targets, -100)) == 0


@pytest.mark.parametrize("num_classes", [None, 25])
def test_the_largest_classes(case, num_classes):
    head, features, targets = case
    targets = targets.clamp(max=24)
    found = feature_top_k(features, head, targets, 4, num_classes)
    logits = head(features).detach().flatten(0, 1)[:, :num_classes]
    expected = truncate(logits, targets.flatten().clamp(min=0), 4)
    for name in ("log_probs", "indices", "label_log_probs", "rest_log_probs"):
        values = getattr(found, name)
        assert values.shape[:2] == targets.shape
        torch.testing.assert_close(values.flatten(0, 1), getattr(expected, name))


@pytest.mark.parametrize("truncated", [False, True])
def test_settings_of_the_objective_reach_the_loss(case, truncated):
    head, features, targets = case
    objective = TPKD(beta=0.7, temperature=2.0)
    answers = torch.randn(2, 7, CLASSES)
    if truncated:
        rows = truncate(answers.flatten(0, 1), targets.flatten().clamp(min=0), 4)
        teacher = rows.map(lambda values: values.unflatten(0, (2, 7)))
        given = teacher
    else:
        teacher, given = answers, answers.movedim(-1, 1)
    found = feature_loss(objective, features, head, teacher, targets, torch.tensor(9))
    expected = objective(head(features).movedim(-1, 1), given, targets, num_items=9)
    torch.testing.assert_close(found, expected)


def test_the_head_is_itself_again_whatever_happens():
    head = nn.Linear(2, 3)
    before = head(torch.ones(1, 2))
    with pytest.raises(ZeroDivisionError), head_computes(head, lambda features: features / 0 if 0 else 1 / 0):
        head(torch.ones(1, 2))
    assert "forward" not in vars(head)
    head.forward = lambda features: features  # as a hook of accelerate's sets it
    own = head.forward
    with head_computes(head, torch.sum):
        assert head(torch.ones(1, 2)) == 2
    assert head.forward is own
    del head.forward
    assert head(torch.ones(1, 2)).equal(before)


@pytest.mark.parametrize("calls", [0, 2])
def test_a_head_that_is_not_called_once_is_refused(calls):
    head = nn.Linear(2, 3)

    def use():
        with head_computes(head, torch.sum):
            for _ in range(calls):
                head(torch.ones(1, 2))

    with pytest.raises(InputError, match=f"expected the network to call its output head once, found {calls} times"):
        use()


def test_a_network_without_a_head_is_refused():
    with pytest.raises(InputError, match=r"output head of Linear to be an nn\.Linear, found none"):
        output_head(nn.Linear(2, 3))


@pytest.mark.parametrize(
    "setting", ["final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier", "output_multiplier"]
)
def test_logits_that_are_changed_after_the_head_are_refused(setting):
    model = nn.Module()
    model.config = type("Config", (), {setting: 1.0})()
    model.get_output_embeddings = lambda: nn.Linear(2, 3)
    assert output_head(model).out_features == 3
    setattr(model.config, setting, 0.25)
    with pytest.raises(InputError, match=f"found {setting}=0.25 in the configuration of Module"):
        output_head(model)


CHANGES = {
    "scaled": lambda logits: 1.01 * logits,
    "capped": lambda logits: 30 * torch.tanh(logits / 30),
    "shifted": lambda logits: logits + 0.5,
    "masked": lambda logits: logits.masked_fill(torch.arange(logits.shape[-1]) == 7, -torch.inf),
    "cut": lambda logits: logits[..., :-1],
    "normalised": lambda logits: logits.log_softmax(-1),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_marked_logits_show_every_change(dtype):
    marked = marked_logits(torch.zeros(2, 3, WIDTH, dtype=dtype), nn.Linear(WIDTH, 1000))
    assert (marked.shape, marked.dtype) == ((1, 1, 1000), dtype)
    assert same_values(marked, marked.float())
    assert not [name for name, change in CHANGES.items() if same_values(marked, change(marked))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_largest_classes_take_little_more_than_a_chunk(dtype):
    """At 49,152 classes; equal logits, of which half precision has many, take the longest way."""
    torch.manual_seed(0)
    head, features = nn.Linear(8, 49_152, dtype=dtype), torch.randn(1, 512, 8, dtype=dtype)
    assert peak_bytes(lambda: feature_top_k(features, head, torch.zeros(1, 512, dtype=torch.long), 64)) < 90e6


def test_chunks_cover_every_row_once():
    parts = row_chunks(10, module.CHUNK_LOGITS // 4)
    assert [row for part in parts for row in range(part.start, part.stop)] == list(range(10))
    assert len(parts) == 3
    assert row_chunks(0, 5) == []


def test_memory_does_not_grow_with_positions_times_classes():
    """Beside weight and features and their gradients, one chunk of logits: at 1,024 positions and at 4,096."""

    def beyond(rows):
        torch.manual_seed(0)
        head, features = nn.Linear(8, 16_384, bias=False), torch.randn(1, rows, 8, requires_grad=True)
        targets = torch.randint(16_384, (1, rows))
        with torch.no_grad():
            teacher = feature_top_k(features, head, targets, 8)

        def call():
            feature_loss(TPKD(), features, head, teacher, targets, None).backward()

        return peak_bytes(call) - 4 * (features.numel() + head.weight.numel())

    few, many = beyond(1024), beyond(4096)
    assert few < 80e6
    assert many < 1.05 * few
