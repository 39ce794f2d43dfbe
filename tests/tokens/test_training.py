"""A student trained from a token cache: equal to a plain loop, resumable, and evaluated."""

import math
import shutil

import pytest
import torch
from torch.nn.functional import cross_entropy

from tokens.tiny import TITLE, fill, permute_tokens, tiny_config, write_model, write_text
from tpkd import top_k_kd_loss, top_k_tpkd_loss
from tpkd.config.loading import ConfigError
from tpkd.errors import InputError
from tpkd.models.language import load_language_model
from tpkd.objectives import create
from tpkd.teacher.cache.truncation import truncate_positions
from tpkd.tokens.cache import build_token_cache, open_text_cache
from tpkd.tokens.student import load_student
from tpkd.tokens.training import batch_loss, train_tokens

METHODS = {
    "ce": {"objective": "ce"},
    "kd": {"objective": "kd", "objective.settings": {"temperature": 1.0}},
    "tpkd": {"objective": "tpkd"},
    "warm": {"objective": "tpkd", "objective.settings": {"temperature": 4.0, "beta": 1.0}},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return with_caches(tmp_path_factory.mktemp("tokens"))


def with_caches(folder):
    write_text(fill(folder) / "held.txt", seed=5)
    for held_out in (False, True):
        build_token_cache(configured(folder), held_out=held_out)
    return folder


def configured(root, *overrides):
    evaluation = {
        "documents": {"path": str(root / "held.txt"), "begin": TITLE},
        "cache": str(root / "held"),
        "tokens": 100,
        "every": 3,
        "curve_tokens": 40,
    }
    return tiny_config(
        root,
        *overrides,
        evaluation=evaluation,
        output=f"{root}/runs/{{objective}}-{{seed}}",
        student={"layers": [0, 2]},
        steps=6,
        batch_size=2,
        checkpoint_every=2,
        log_every=2,
        optimizer={"learning_rate": 1e-2, "warmup": 2},
        methods=METHODS,
    )


def plain_loss(name, logits, kept, labels):
    if name == "ce":
        return cross_entropy(logits.flatten(0, 1), labels.flatten())
    given = (logits, kept.log_probs, kept.indices, labels)
    known = {"label_log_probs": kept.label_log_probs, "rest_log_probs": kept.rest_log_probs}
    if name == "kd":
        return top_k_kd_loss(*given, **known)
    settings = {"temperature": 4.0, "beta": 1.0} if name == "warm" else {}
    return top_k_tpkd_loss(*given, **known, **settings)


@pytest.mark.parametrize("name", METHODS)
def test_gradients_are_those_of_a_plain_loop(root, name):
    config = configured(root, f"name={name}")
    cache, text = open_text_cache(config)
    rows = torch.tensor([4, 1, 7]).numpy()
    ours, plain = load_student(config), load_student(config)
    batch_loss(ours, cache, create(config.objective.name, **config.objective.settings), rows).backward()
    tokens = torch.from_numpy(text.blocks.tokens[rows])
    kept = cache.read(text.blocks.documents[rows], text.blocks.numbers[rows])
    plain_loss(name, plain(input_ids=tokens).logits[:, :-1], kept, tokens[:, 1:]).backward()
    for one, other in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["kd", "tpkd", "warm"])
def test_a_cached_and_an_online_teacher_train_alike(root, tmp_path, name):
    """A cache in float32 differs from the teacher itself by the rounding of another batch size."""
    config = configured(root, f"name={name}", ("teacher.cache", str(tmp_path)), "teacher.cache_dtype=float32")
    build_token_cache(config)
    cache, text = open_text_cache(config)
    teacher = load_language_model(str(root / "model"))
    rows = torch.tensor([0, 5]).numpy()
    tokens = torch.from_numpy(text.blocks.tokens[rows])
    with torch.no_grad():
        online = truncate_positions(teacher(input_ids=tokens).logits[:, :-1], tokens[:, 1:], cache.top_k)
    ours, plain = load_student(config), load_student(config)
    batch_loss(ours, cache, create(config.objective.name, **config.objective.settings), rows).backward()
    plain_loss(name, plain(input_ids=tokens).logits[:, :-1], online, tokens[:, 1:]).backward()
    for one, other in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-5, rtol=1e-4)


def test_a_run_that_was_stopped_ends_where_the_other_ends(root):
    straight = train_tokens(configured(root, "name=tpkd"))
    config = configured(root, "name=tpkd", ("output", str(root / "runs" / "again")))

    def stop(step, steps, loss):
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_tokens(config, on_step=stop)
    steps = []
    again = train_tokens(config, resume=True, on_step=lambda step, steps_, loss: steps.append(step))
    assert steps == [5, 6]  # from the checkpoint of step 4
    assert again.final == straight.final
    assert again.curve == straight.curve
    assert again.training_loss == straight.training_loss
    students = [load_language_model(str(root / "runs" / name / "student")) for name in ("tpkd-42", "again")]
    for one, other in zip(*(student.parameters() for student in students), strict=True):
        assert torch.equal(one, other)


def test_a_run_does_not_continue_with_another_cache(tmp_path):
    folder = with_caches(tmp_path)
    config = configured(folder, "name=tpkd")

    def stop(step, steps, loss):
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_tokens(config, on_step=stop)
    for name in ("cache", "model"):
        (folder / name).rename(folder / f"first-{name}")
    write_model(folder / "model", seed=9)
    build_token_cache(configured(folder))
    with pytest.raises(InputError, match="to continue with the token cache that the run began with, found another"):
        train_tokens(config)
    shutil.rmtree(folder / "cache")
    (folder / "first-cache").rename(folder / "cache")
    with pytest.raises(InputError, match="to continue with the student that the run began with, found another"):
        train_tokens(config)
    shutil.rmtree(folder / "model")
    (folder / "first-model").rename(folder / "model")
    assert train_tokens(config).steps == config.steps


def test_what_a_run_leaves_behind(root):
    config = configured(root, "name=ce", "seed=43")
    found = train_tokens(config)
    assert (found.name, found.seed, found.steps, found.training_tokens) == ("ce", 43, 6, 6 * 2 * 15)
    assert [point.step for point in found.curve] == [3, 6]
    assert found.final.perplexity == pytest.approx(math.exp(found.final.loss))
    assert found.start.margin_fell is None
    assert 0 < found.final.margin_fell < 1
    assert found.training_loss[-1] < found.training_loss[0]
    assert train_tokens(config) == found  # finished: nothing runs
    left = {path.name for path in (root / "runs" / "ce-43").iterdir()}
    assert left >= {"config.yaml", "result.json", "student"}
    assert "checkpoints" not in left


def test_another_configuration_in_the_same_place_is_refused(root):
    train_tokens(configured(root, "name=kd"))
    with pytest.raises(
        InputError, match=r"config\.yaml: expected the configuration of this run, 'steps: 7', found 'steps: 6'"
    ):
        train_tokens(configured(root, "name=kd", "steps=7"))


def test_what_cannot_be_trained_is_refused(root):
    with pytest.raises(ConfigError, match=r"output: missing"):
        train_tokens(tiny_config(root))
    with pytest.raises(ConfigError, match=r"objective: expected one that learns from a truncated teacher, found dkd"):
        train_tokens(configured(root, "objective=dkd"))
    with pytest.raises(ConfigError, match=r"found kd; set temperature=1"):
        train_tokens(configured(root, "objective=kd"))
    with pytest.raises(InputError, match=r"expected a run to continue, found none"):
        train_tokens(configured(root, "name=ce", "seed=7"), resume=True)


def test_a_student_of_another_tokeniser_is_refused_before_its_run_begins(root, tmp_path):
    student = permute_tokens(write_model(tmp_path / "student"))
    place = ("output", str(tmp_path / "run"))
    with pytest.raises(ConfigError, match=r"^student\.model: expected the tokeniser of the cache"):
        train_tokens(configured(root, place, ("student", {"model": f"hf:{student}"})))
    write_model(student)
    train_tokens(configured(root, place, ("student", {"model": f"hf:{student}"}), "steps=2"))  # put right, in its place


def test_a_student_with_fewer_logits_than_the_cache_is_refused_before_its_run_begins(root, tmp_path):
    padded = write_model(tmp_path / "padded", padding=4)
    places = [("teacher.model", f"hf:{padded}"), ("teacher.cache", str(tmp_path / "cache"))]
    config = configured(
        root, *places, ("student", {"model": f"hf:{root / 'model'}"}), ("output", str(tmp_path / "run"))
    )
    build_token_cache(config)
    with pytest.raises(ConfigError, match=r"^student\.model: expected at least 304 logits, .*, found 300"):
        train_tokens(config)


def test_logits_that_are_no_tokens_are_left_out(root, tmp_path):
    """A student whose table is padded learns as one without padding."""
    plain, padded = (write_model(tmp_path / str(padding), padding=padding) for padding in (0, 4))
    weights = load_language_model(str(plain))
    weights.resize_token_embeddings(304, mean_resizing=False)
    weights.save_pretrained(padded)
    losses = []
    for student in (plain, padded):
        place = ("output", str(tmp_path / f"run-{student.name}"))
        losses.append(train_tokens(configured(root, place, ("student", {"model": f"hf:{student}"}))).training_loss)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)  # another width of the product with the table


def test_a_flipped_byte_is_refused_by_name(root, tmp_path):
    shutil.copytree(root / "cache", tmp_path / "cache")
    shard = tmp_path / "cache" / "shard-00000.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    with pytest.raises(InputError, match=r"cache/shard-00000\.safetensors: expected SHA-256"):
        train_tokens(configured(root, ("teacher.cache", str(tmp_path / "cache")), ("output", str(tmp_path / "run"))))
