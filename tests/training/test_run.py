import json

import pytest
import torch

from tpkd.config.loading import ConfigError, resolve_config
from tpkd.training.run import assemble, build_objective, start_accelerator
from tpkd.training.step import take_step
from training.tiny import make_config, online, plain_config


@pytest.fixture
def config(tmp_path):
    return online(make_config(tmp_path))


def test_tf32_is_off_unless_asked_for(config):
    start_accelerator(config)
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cudnn.allow_tf32
    start_accelerator(config.model_copy(update={"tf32": True}))
    assert torch.get_float32_matmul_precision() == "high"
    assert torch.backends.cudnn.allow_tf32
    start_accelerator(config)
    assert torch.get_float32_matmul_precision() == "highest"


def test_accumulation_stays_with_the_loop(config):
    assert start_accelerator(config).gradient_accumulation_steps == 1


def test_precision_may_change_from_run_to_run(config):
    for precision, expected in (("bf16", "bf16"), ("fp32", "no"), ("bf16", "bf16")):
        accelerator = start_accelerator(config.model_copy(update={"precision": precision}))
        assert accelerator.mixed_precision == expected


def test_the_start_of_a_run_depends_on_its_seeds_alone(config, tmp_path):
    starts = []
    for seed, student_seed in ((42, 0), (42, 0), (43, 0), (42, 1)):
        torch.manual_seed(len(starts))  # what happened before must not matter
        student = config.student.model_copy(update={"seed": student_seed})
        changed = config.model_copy(
            update={
                "seed": seed,
                "student": student,
                "objective": config.objective.model_copy(update={"name": "dhkd"}),
            }
        )
        run = assemble(changed, start_accelerator(changed), tmp_path)
        head = run.objective.state_dict()["head.0.weight"]
        starts.append((run.student.classifier.weight.detach().clone(), head.clone(), torch.rand(1)))
    assert all(torch.equal(a, b) for a, b in zip(starts[0], starts[1], strict=True))
    assert torch.equal(starts[0][0], starts[2][0])  # another run from the same start
    assert not torch.equal(starts[0][1], starts[2][1])
    assert not torch.equal(starts[0][2], starts[2][2])
    assert not torch.equal(starts[0][0], starts[3][0])


def test_every_parameter_that_learns_is_optimised_once(config, tmp_path):
    changed = config.model_copy(update={"objective": config.objective.model_copy(update={"name": "dhkd"})})
    run = assemble(changed, start_accelerator(changed), tmp_path)
    optimised = [id(parameter) for group in run.optimizer.param_groups for parameter in group["params"]]
    own = [parameter for module in run.objective.modules().values() for parameter in module.parameters()]
    assert len(own) == 6
    assert sorted(optimised) == sorted(id(parameter) for parameter in (*run.student.parameters(), *own))


def test_a_network_without_a_linear_head_cannot_have_a_second_one(config):
    class Odd:
        feature_size, num_classes, layer_sizes, has_linear_head = 4, 10, (4, 4), False

    changed = config.model_copy(update={"objective": config.objective.model_copy(update={"name": "dhkd"})})
    teacher = type("Teacher", (), {"layer_sizes": (3,)})()
    with pytest.raises(ConfigError, match=r"student\.model: objective 'dhkd' needs one linear head"):
        build_objective(changed, Odd(), teacher)


@pytest.mark.parametrize(("limit", "batch_size", "micro"), [(150, 32, 16), (150, 64, 7), (33, 32, None), (10, 3, 2)])
def test_micro_batches_hold_every_sample_once_and_are_no_larger_than_asked(tmp_path, limit, batch_size, micro):
    config = online(make_config(tmp_path, limit=limit, batch_size=batch_size, micro_batch_size=micro))
    run = assemble(config, start_accelerator(config), tmp_path)
    for step in range(1, run.num_steps + 1):
        samples = run.batches[step - 1]
        pieces = list(run.micro_batches(step, samples))
        assert torch.cat([piece.sample_ids for piece in pieces]).equal(samples.sample_ids)
        assert torch.cat([piece.inputs for piece in pieces]).equal(samples.inputs)
        assert all(0 < len(piece) <= (micro or batch_size) for piece in pieces)


def test_a_batch_too_small_for_its_processes_is_refused(tmp_path):
    config = online(make_config(tmp_path, limit=33, epochs=1, micro_batch_size=None))
    run = assemble(config, start_accelerator(config), tmp_path)
    run.accelerator = type("Two", (), {"num_processes": 2})()
    with pytest.raises(ConfigError, match="batch_size: step 2 has 1 samples, too few for 2 processes"):
        run.check_shares()


@pytest.mark.parametrize(("limit", "micro"), [(32, 1), (33, None)])
def test_a_batch_too_small_for_its_objective_is_refused_before_the_first_step(tmp_path, limit, micro):
    def config_for(head):
        objective = {"name": "dhkd", "settings": {"head": head}}
        changes = {"limit": limit, "epochs": 1, "batch_size": 32, "micro_batch_size": micro}
        return online(make_config(tmp_path, objective=objective, **changes))

    config = config_for("nonlinear")
    with pytest.raises(ConfigError, match=r"batch_size: step \d has .*, of at least 2 samples for objective 'dhkd'"):
        assemble(config, start_accelerator(config), tmp_path)
    config = config_for("linear")
    assert assemble(config, start_accelerator(config), tmp_path).num_steps > 0


@pytest.mark.parametrize("padding", ["longest", "max_length"])
def test_micro_batches_of_text_hold_no_needless_padding_and_the_same_gradient(tmp_path, padding):
    lines = [json.dumps({"text": "word " * (1 + 7 * row % 11), "label": f"class {row % 3}"}) for row in range(24)]
    for part in ("train", "test"):
        (tmp_path / f"{part}.jsonl").write_text("\n".join(lines))
    settings = {"vocab_size": 50, "layers": 1, "hidden_size": 16, "heads": 2, "dropout": 0.0}
    plain = plain_config(
        tmp_path,
        data={"name": f"jsonl:{tmp_path}"},
        limit=None,
        views={},
        text={"max_length": 16, "padding": padding},
        student={"model": "builtin:bert", "options": settings},
        teacher=None,
        objective="ce",
        batch_size=24,
        micro_batch_size=None,
    )
    gradients, widths = [], []
    for micro in (None, 6):
        config = resolve_config({**plain, "micro_batch_size": micro})
        run = assemble(config, start_accelerator(config), tmp_path)
        samples = run.batches[0]
        pieces = list(run.micro_batches(1, samples))
        assert sorted(torch.cat([piece.sample_ids for piece in pieces]).tolist()) == list(range(24))
        for piece in pieces:
            assert piece.labels.tolist() == (piece.sample_ids % 3).tolist()
        widths.append([piece.inputs["input_ids"].shape[1] for piece in pieces])
        run.optimizer.step = lambda: None
        take_step(run, 1, samples)
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in run.student.parameters()]))
    assert widths == ([[13], [5, 8, 10, 13]] if padding == "longest" else [[16], [16] * 4])
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("variable", "engine"), [("ACCELERATE_USE_FSDP", "FSDP"), ("ACCELERATE_USE_DEEPSPEED", "DeepSpeed")]
)
def test_engines_that_split_the_student_are_refused_by_name(config, monkeypatch, variable, engine):
    monkeypatch.setenv(variable, "true")
    with pytest.raises(
        ConfigError, match=rf"{engine}: not supported by tpkd train.*use tpkd_loss in your own {engine}"
    ):
        start_accelerator(config)
    monkeypatch.setenv(variable, "false")
    start_accelerator(config)
