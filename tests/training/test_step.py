import dataclasses

import pytest
import torch

from tpkd.geometry.top_k import TopK
from tpkd.objectives.base import Batch
from tpkd.training.run import assemble, start_accelerator
from tpkd.training.step import NonFiniteError, _finite_rows, _keep_rows, _valid_rows, take_step
from training.steps import assert_close, first_steps
from training.tiny import ALIGNED, SEPARABLE, make_config, online, with_cache

OTHERS = {
    "dhkd": ALIGNED,
    "dto-kd": {"layer_features": "own-objective"},
}
CASES = [(name, settings) for methods in (SEPARABLE, OTHERS) for name, settings in methods.items()]
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}
"""One batch of 64 against four of 16: the same sums in another order."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("step")
    with_cache(directory)
    return directory


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request):
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(torch.float32)


def make_run(directory, **changes):
    config = make_config(directory, **changes)
    return assemble(config, start_accelerator(config), directory)


@pytest.mark.parametrize(("name", "settings"), CASES, ids=[f"{name}-{len(settings)}" for name, settings in CASES])
def test_four_micro_batches_of_16_give_the_gradient_of_one_batch_of_64(directory, dtype, name, settings):
    found = [
        first_steps(
            make_config(
                directory,
                teacher={"cache": str(directory / "cache"), "layers": [2]},  # whose network is float32
                objective={"name": name, "settings": settings},
                batch_size=64,
                micro_batch_size=size,
            ),
            directory,
        )
        for size in (64, 16)
    ]
    assert_close(*found, TOLERANCE[dtype])


def test_the_gradient_is_that_of_the_mean_over_the_batch(directory):
    run = make_run(directory, objective="kd", batch_size=64, micro_batch_size=16)
    samples = run.batches[0]
    take_step(run, 1, samples)
    found = [parameter.grad.clone() for parameter in run.student.parameters()]

    fresh = make_run(directory, objective="kd", batch_size=64)
    answers = fresh.teacher.answer(samples.inputs, samples.sample_ids, samples.view_ids)
    batch = Batch(student_logits=fresh.student(samples.inputs), labels=samples.labels, teacher_logits=answers.logits)
    fresh.objective.losses(batch)["loss"].backward()
    for gradient, parameter in zip(found, fresh.student.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=0, atol=1e-6)


def test_sgd_moves_by_the_gradient(directory):
    run = make_run(directory, optimizer={"name": "sgd", "learning_rate": 0.1, "momentum": 0.0})
    before = [parameter.detach().clone() for parameter in run.student.parameters()]
    take_step(run, 1, run.batches[0])
    for old, parameter in zip(before, run.student.parameters(), strict=True):
        assert torch.equal(parameter, old.add(parameter.grad, alpha=-0.1))


def test_clipping_bounds_the_whole_gradient_and_reports_its_norm_before(directory):
    norms = []
    for clip in (None, 0.01):
        run = make_run(directory, clip_norm=clip)
        norms.append(take_step(run, 1, run.batches[0]).gradient_norm)
    assert norms[0] == pytest.approx(norms[1], rel=1e-6)
    assert norms[0] > 0.01
    total = torch.cat([parameter.grad.flatten() for parameter in run.student.parameters()]).norm()
    assert total.item() == pytest.approx(0.01, rel=1e-4)


def poisoned(run, row, value):
    samples = run.batches[0]
    inputs = samples.inputs.clone()
    inputs[row] = value
    return dataclasses.replace(samples, inputs=inputs)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("objective", ["ce", "tpkd", "dto-kd"])
def test_a_loss_that_is_not_finite_stops_before_the_step_and_names_the_sample(directory, objective, value):
    run = make_run(directory, objective=objective)
    samples = poisoned(run, 20, value)
    before = [parameter.detach().clone() for parameter in run.student.parameters()]
    message = rf"step 1: the loss is not finite, logits are not finite for samples {samples.sample_ids[20]};"
    with pytest.raises(NonFiniteError, match=message):
        take_step(run, 1, samples)
    assert all(torch.equal(old, new) for old, new in zip(before, run.student.parameters(), strict=True))


def test_a_gradient_that_is_not_finite_stops_before_the_step(directory):
    run = make_run(directory, objective="ce")
    run.student.classifier.weight.register_hook(lambda gradient: gradient * float("nan"))
    before = [parameter.detach().clone() for parameter in run.student.parameters()]
    with pytest.raises(NonFiniteError, match=r"the gradient is not finite, the batch holds samples .* and 24 more"):
        take_step(run, 1, run.batches[0])
    assert all(torch.equal(old, new) for old, new in zip(before, run.student.parameters(), strict=True))


def test_an_overflow_under_a_scaler_skips_the_step_and_what_follows_it(directory):
    run = make_run(directory, objective="dto-kd")
    use_scaler(run)
    run.student.classifier.weight.register_hook(lambda gradient: gradient * float("inf"))
    before = [parameter.detach().clone() for parameter in run.student.parameters()]
    state = {name: torch.as_tensor(value).clone() for name, value in run.objective.state_dict().items()}
    outcome = take_step(run, 1, run.batches[0])
    assert outcome.skipped
    assert all(torch.equal(old, new) for old, new in zip(before, run.student.parameters(), strict=True))
    assert all(torch.equal(state[name], torch.as_tensor(run.objective.state_dict()[name])) for name in state)
    assert run.accelerator.scaler.get_scale() == 2.0**9


@pytest.mark.parametrize("objective", ["tpkd", "dhkd", "dto-kd"])
def test_a_scaler_that_finds_no_overflow_changes_nothing(directory, objective):
    outcomes = []
    for scaled in (False, True):
        run = make_run(directory, objective=objective, clip_norm=1.0)
        if scaled:
            use_scaler(run)
        take_step(run, 1, run.batches[0])
        outcomes.append([parameter.detach() for parameter in run.student.parameters()])
    for plain, with_scaler in zip(*outcomes, strict=True):
        torch.testing.assert_close(plain, with_scaler, rtol=0, atol=1e-7)  # the scale is a power of two


def use_scaler(run):
    """Mixed precision's scaler on a CPU, where accelerate offers none: as `precision: fp16` has it on a GPU."""
    from accelerate.optimizer import AcceleratedOptimizer

    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    run.accelerator.scaler = scaler
    run.accelerator.native_amp = True
    run.accelerator.state._mixed_precision = "fp16"
    run.optimizer = AcceleratedOptimizer(run.optimizer.optimizer, device_placement=False, scaler=scaler)
    run.accelerator._optimizers = [run.optimizer]


def test_bf16_runs_the_student_in_half_precision_and_the_loss_in_full(directory):
    run = make_run(directory, precision="bf16")
    seen = []
    run.student.layers[0].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    outcome = take_step(run, 1, run.batches[0])
    assert set(seen) == {torch.bfloat16}
    assert outcome.loss > 0
    assert all(parameter.dtype == torch.float32 for parameter in run.student.parameters())


def test_the_post_step_evaluation_sees_the_same_dropout_and_changes_nothing_else(directory):
    """Without a step (rate 0) the losses after it must be the losses before it, dropout or not."""
    student = {"model": "builtin:mlp", "options": {"input_size": 64, "hidden": [16], "dropout": 0.5}}
    run = make_run(directory, objective="dto-kd", student=student)
    for group in run.optimizer.param_groups:
        group["lr"] = 0.0
    seen = {}
    after_step = run.objective.after_step
    run.objective.after_step = lambda batch: (seen.update(run.objective._objectives(batch)), after_step(batch))
    outcome = take_step(run, 1, run.batches[0])
    for name, loss in outcome.losses.items():
        assert seen[name].item() == pytest.approx(loss, rel=1e-6)


def test_only_what_an_objective_needs_is_computed(directory):
    config = online(make_config(directory, objective="ce"))
    run = assemble(config, start_accelerator(config), directory)
    asked = []
    answer = run.teacher.answer
    run.teacher.answer = lambda *arguments, **options: asked.append(1) or answer(*arguments, **options)
    assert take_step(run, 1, run.batches[0]).monitor == {}
    assert asked == []
    assert take_step(run, 2, run.batches[1], look=True).monitor["blocked_share"] >= 0
    assert asked == [1, 1]


class TestATruncatedTeacher:
    """What may be in a row of it that is sound, and what not."""

    def batch(self, **changes):
        given = {
            "log_probs": torch.tensor([[-1.0, -2.0]] * 4),
            "indices": torch.tensor([[0, 1]] * 4),
            "label_log_probs": torch.full((4,), -1.5),
            "rest_log_probs": torch.full((4,), -4.0),
        }
        for name, (row, value) in changes.items():
            given[name][row] = value
        return Batch(student_logits=torch.zeros(4, 5), teacher_logits=TopK(**given))

    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"log_probs": (0, -torch.inf)},  # a known zero
            {"rest_log_probs": (0, -torch.inf)},  # nothing is left
            {"label_log_probs": (0, torch.nan)},  # not known
            {"log_probs": (0, torch.nan), "indices": (0, -1)},  # an empty place
        ],
    )
    def test_may_say_nothing_or_zero(self, changes):
        assert _finite_rows(self.batch(**changes)).all()

    @pytest.mark.parametrize("name", ["log_probs", "rest_log_probs", "label_log_probs"])
    def test_must_not_be_infinite(self, name):
        assert _finite_rows(self.batch(**{name: (2, torch.inf)})).tolist() == [True, True, False, True]

    @pytest.mark.parametrize("name", ["log_probs", "rest_log_probs"])
    def test_must_not_be_nan(self, name):
        assert _finite_rows(self.batch(**{name: (1, torch.nan)})).tolist() == [True, False, True, True]

    def test_does_not_hide_a_student_that_is_not_finite(self):
        batch = self.batch()
        batch.student_logits[3, 0] = torch.nan
        assert _finite_rows(batch).tolist() == [True, True, True, False]


def test_rows_are_ignored_in_the_form_that_labels_have():
    kept = torch.tensor([True, False, True])
    assert _keep_rows(torch.tensor([3, 4, 5]), kept).tolist() == [3, -100, 5]
    soft = torch.tensor([[0.5, 0.5, 0.0], [torch.nan, 0.0, 0.0], [0.0, 0.0, 1.0]])
    assert _keep_rows(soft, kept).tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    assert _valid_rows(torch.tensor([3, -100, 0])).tolist() == [True, False, True]
    assert _valid_rows(torch.tensor([[0.5, 0.5], [0.0, 0.0]])).tolist() == [True, False]
