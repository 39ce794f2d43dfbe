"""The cache of a language model as a configuration names it."""

import pytest
import torch

from tokens.tiny import fill, tiny_config, write_model, write_text
from tpkd.config.loading import ConfigError
from tpkd.errors import InputError
from tpkd.models.language import load_language_model
from tpkd.teacher.cache.parts import Part
from tpkd.tokens.cache import build_token_cache, load_text, open_text_cache, plan_token_cache, verify_token_cache


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = fill(tmp_path_factory.mktemp("tokens"))
    build_token_cache(tiny_config(folder))
    return folder


def test_it_holds_what_the_teacher_says(root):
    cache, text = open_text_cache(tiny_config(root))
    assert (cache.tokens(cache.documents, cache.blocks).numpy() == text.blocks.tokens).all()
    tokens = torch.from_numpy(text.blocks.tokens)
    with torch.no_grad():
        log_probs = load_language_model(str(root / "model"))(tokens).logits[:, :-1].log_softmax(-1)
    found = cache.read(cache.documents, cache.blocks, tokens)
    kept = log_probs.gather(-1, found.indices)
    # One rounding to half precision, and another batch size.
    torch.testing.assert_close(found.log_probs, kept, atol=1e-2, rtol=2e-3)
    left_out = log_probs.scatter(-1, found.indices, -torch.inf).amax(-1)
    assert (left_out <= kept.amin(-1) + 1e-5).all()
    label = log_probs.gather(-1, tokens[:, 1:, None]).squeeze(-1)
    torch.testing.assert_close(found.label_log_probs, label, atol=1e-2, rtol=2e-3)
    given = found.log_probs.exp().masked_fill(found.indices == tokens[:, 1:, None], 0).sum(-1) + label.exp()
    torch.testing.assert_close(found.rest_log_probs.exp(), 1 - given, atol=5e-3, rtol=0)


def test_it_verifies(root):
    report = verify_token_cache(root / "cache", tiny_config(root))
    assert report.passes
    assert report.rows_recomputed > 0


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("packing.length=15", r"preprocessing\.packing\.length: expected 15, found 16"),
        ("packing.separator='<'", r"preprocessing\.packing\.separator"),
        ("limit=3", r"preprocessing\.packing\.limit: expected 3, found nothing"),
        ("documents.begin=null", r"dataset_fingerprint: expected"),
        ("teacher.top_k=4", r"top_k: expected 4, found 8"),
    ],
)
def test_another_packing_text_or_truncation_is_refused_by_name(root, override, message):
    with pytest.raises(InputError, match=message):
        verify_token_cache(root / "cache", tiny_config(root, override))
    with pytest.raises(InputError, match=message):
        build_token_cache(tiny_config(root, override))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("teacher.top_k=4", r"top_k: expected 4, found 8"),
        ("teacher.top_p=0.5", r"top_p: expected 0\.5, found nothing"),
        ("teacher.cache_dtype=float32", r"dtype: expected 'float32', found 'float16'"),
    ],
)
def test_another_truncation_is_refused_when_a_cache_is_opened(root, override, message):
    with pytest.raises(InputError, match=rf"cache: this cache was computed from something else: {message}$"):
        open_text_cache(tiny_config(root, override))


def test_more_classes_than_there_are_is_all_of_them(root, tmp_path):
    config = tiny_config(root, ("teacher.cache", str(tmp_path / "all")), "teacher.top_k=1000", "limit=3")
    build_token_cache(config)
    assert open_text_cache(config)[0].top_k == 300


def test_other_text_is_refused_without_building_the_teacher(root, tmp_path):
    other = write_text(tmp_path / "other.txt", seed=1)
    with pytest.raises(InputError, match=r"dataset_fingerprint: expected"):
        open_text_cache(tiny_config(root, ("documents.path", str(other))))


def test_another_teacher_or_tokeniser_is_refused_by_name(root, tmp_path):
    weights = write_model(tmp_path / "weights", seed=1)
    with pytest.raises(InputError, match=r"computed from something else: model_fingerprint: expected \S+ found \S+$"):
        verify_token_cache(root / "cache", tiny_config(root, ("teacher.model", f"hf:{weights}")))
    words = write_model(tmp_path / "words", vocabulary=290)
    with pytest.raises(InputError, match=r"preprocessing\.tokenizer: expected .*; a GGUF file and a folder"):
        open_text_cache(tiny_config(root, ("teacher.model", f"hf:{words}")))


def test_a_build_that_was_stopped_continues_to_the_same_bytes(root, tmp_path):
    config = tiny_config(root, ("teacher.cache", str(tmp_path / "again")))

    def stop(progress):
        if progress.rows_done > 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_token_cache(config, shard_bytes=2000, on_progress=stop)
    assert 0 < len(list((tmp_path / "again").glob("shard-*"))) < 20
    seen = []
    build_token_cache(config, shard_bytes=2000, on_progress=lambda progress: seen.append(progress.rows_done))
    assert seen[0] > 0
    straight = tiny_config(root, ("teacher.cache", str(tmp_path / "straight")))
    build_token_cache(straight, shard_bytes=2000)
    files = sorted(path.name for path in (tmp_path / "straight").glob("*.safetensors"))
    assert len(files) > 2
    for name in files:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()


def test_a_part_goes_beside_the_cache(root, tmp_path):
    config = tiny_config(root, ("teacher.cache", str(tmp_path / "cache")))
    assert build_token_cache(config, part=Part(1, 2), shard_bytes=2000) == tmp_path / "cache.part-1-of-2"


def test_held_out_text_has_a_cache_of_its_own(root, tmp_path):
    held = write_text(tmp_path / "held.txt", seed=2)
    section = {"documents": {"path": str(held), "begin": "= doc .* ="}, "cache": str(tmp_path / "held"), "tokens": 40}
    config = tiny_config(root, evaluation=section)
    build_token_cache(config, held_out=True)
    cache, _ = open_text_cache(config, held_out=True)
    assert len(cache) == 3  # of 15 predictions each
    assert verify_token_cache(tmp_path / "held", config).passes


def test_held_out_text_must_be_named(root):
    with pytest.raises(InputError, match=r"evaluation: missing"):
        plan_token_cache(tiny_config(root), held_out=True)


def test_an_unknown_separator_is_refused(root):
    with pytest.raises(ConfigError, match=r"packing: separator: expected a token of the tokeniser, found '<none>'"):
        load_text(tiny_config(root, "packing.separator=<none>"))


def test_documents_of_too_different_lengths_are_refused(root, tmp_path):
    """One long document among many that are a block each: an index by document would have mostly empty places."""
    titled = "".join(f"= doc {number} =\nthe cat sat on the mat . a dog ran\n" for number in range(300))
    (tmp_path / "text.txt").write_text(titled + "= doc long =\n" + "the old town slept while it rained . " * 900)
    with pytest.raises(
        ConfigError, match=r"documents: expected documents of comparable lengths, found one of \d+ blocks"
    ):
        build_token_cache(tiny_config(root, ("documents.path", str(tmp_path / "text.txt")), "packing.length=16"))
