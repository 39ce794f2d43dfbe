"""A language model's cache from what it said elsewhere."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from tokens.tiny import fill, tiny_config, write_model, write_text
from tpkd.config.loading import ConfigError
from tpkd.errors import InputError
from tpkd.importing.tokens import import_tokens
from tpkd.models.language import load_language_model
from tpkd.teacher.cache.tokens import write_token_cache
from tpkd.teacher.cache.truncation import truncate_positions
from tpkd.tokens.cache import build_token_cache, load_text, open_text_cache, verify_token_cache

COLUMNS = ("log_probs", "indices", "label_log_probs", "rest_log_probs")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = fill(tmp_path_factory.mktemp("tokens"))
    build_token_cache(tiny_config(folder, "teacher.cache_dtype=float32"))
    return folder


def into(root, place, *overrides):
    return tiny_config(root, ("teacher.cache", str(place)), "teacher.cache_dtype=float32", *overrides)


def answers(root):
    """What the model says about its text, and the text."""
    tokens = torch.from_numpy(load_text(tiny_config(root)).blocks.tokens)
    with torch.no_grad():
        logits = load_language_model(str(root / "model"))(tokens).logits[:, :-1]
    return logits.log_softmax(-1), tokens


def arrays(root):
    log_probs, tokens = answers(root)
    kept = truncate_positions(log_probs, tokens[:, 1:], 8)
    return {name: getattr(kept, name).numpy() for name in COLUMNS} | {"tokens": tokens.numpy()}


def vllm_lines(root, path, blocks_per_answer=3):
    """As the server answers: the eight largest and the token itself, with ranks."""
    log_probs, tokens = answers(root)
    choices = []
    for block, text in zip(log_probs, tokens.tolist(), strict=True):
        said = [None]
        for row, token in zip(block, text[1:], strict=True):
            order = row.argsort(descending=True).tolist()
            chosen = dict.fromkeys([token, *order[:8]])
            said.append(
                {str(c): {"logprob": row[c].item(), "rank": order.index(c) + 1, "decoded_token": "x"} for c in chosen}
            )
        choices.append({"index": len(choices) % blocks_per_answer, "text": "x", "prompt_logprobs": said})
    groups = [choices[at : at + blocks_per_answer] for at in range(0, len(choices), blocks_per_answer)]
    path.write_text("".join(json.dumps({"choices": group}) + "\n" for group in groups))
    return path


def assert_same(root, config):
    built, imported = open_text_cache(tiny_config(root, "teacher.cache_dtype=float32"))[0], open_text_cache(config)[0]
    one, other = (cache.read(cache.documents, cache.blocks) for cache in (built, imported))
    assert torch.equal(one.indices, other.indices)
    for name in ("log_probs", "label_log_probs", "rest_log_probs"):
        # Another batch size, and one minus the sum instead of the sum of the rest.
        torch.testing.assert_close(getattr(one, name), getattr(other, name), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_arrays_become_the_cache_that_the_model_would_build(root, tmp_path, suffix):
    path = tmp_path / f"answers{suffix}"
    np.savez(path, **arrays(root)) if suffix == ".npz" else save_file(arrays(root), path)
    config = into(root, tmp_path / "cache")
    import_tokens(config, path)
    assert_same(root, config)


def test_the_answers_of_a_vllm_server_become_the_same_cache(root, tmp_path):
    config = into(root, tmp_path / "cache")
    import_tokens(config, vllm_lines(root, tmp_path / "answers.jsonl"))
    assert_same(root, config)


def test_an_import_that_was_stopped_continues_and_one_that_is_done_is_left(root, tmp_path):
    config, path = into(root, tmp_path / "cache"), vllm_lines(root, tmp_path / "answers.jsonl")

    def stop(progress):
        if progress.rows_done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_tokens(config, path, on_progress=stop)
    import_tokens(config, path)
    assert_same(root, config)
    before = (tmp_path / "cache" / "shard-00000.safetensors").stat()
    import_tokens(config, path)
    assert (tmp_path / "cache" / "shard-00000.safetensors").stat().st_mtime_ns == before.st_mtime_ns


def test_another_file_does_not_overwrite_a_cache(root, tmp_path):
    config = into(root, tmp_path / "cache")
    np.savez(tmp_path / "a.npz", **arrays(root))
    import_tokens(config, tmp_path / "a.npz")
    with pytest.raises(InputError, match=r"holds another cache: model_fingerprint"):
        import_tokens(config, vllm_lines(root, tmp_path / "answers.jsonl"))


def test_other_text_is_refused_by_block_and_token(root, tmp_path):
    changed = arrays(root)
    changed["tokens"][2, 5] += 1
    np.savez(tmp_path / "a.npz", **changed)
    with pytest.raises(InputError, match=r"tokens: block 2, token 5: expected \d+, found \d+: other text"):
        import_tokens(into(root, tmp_path / "cache"), tmp_path / "a.npz")


def test_other_text_is_refused_without_tokens_too(root, tmp_path):
    shuffled = {name: values[::-1].copy() for name, values in arrays(root).items() if name != "tokens"}
    np.savez(tmp_path / "a.npz", **shuffled)
    with pytest.raises(InputError, match=r"block 0, token \d+: expected for the right token \d+ the log-probability"):
        import_tokens(into(root, tmp_path / "cache"), tmp_path / "a.npz")


def test_another_packing_is_refused(root, tmp_path):
    np.savez(tmp_path / "a.npz", **arrays(root))
    with pytest.raises(InputError, match=r"log_probs: expected shape \(\d+, 14, 8\), as text and teacher\.top_k say"):
        import_tokens(into(root, tmp_path / "cache", "packing.length=15"), tmp_path / "a.npz")
    with pytest.raises(ConfigError, match=r"teacher\.top_p: expected none for an import"):
        import_tokens(into(root, tmp_path / "cache", "teacher.top_p=0.9"), tmp_path / "a.npz")


def test_a_rest_that_was_not_stored_is_one_minus_what_is_given(root, tmp_path):
    given = arrays(root)
    del given["rest_log_probs"]
    np.savez(tmp_path / "a.npz", **given)
    config = into(root, tmp_path / "cache")
    import_tokens(config, tmp_path / "a.npz")
    assert_same(root, config)


@pytest.fixture(scope="module")
def imported(root, tmp_path_factory):
    """A cache from arrays, its configuration, and no weights of a teacher."""
    folder = tmp_path_factory.mktemp("imported")
    np.savez(folder / "a.npz", **arrays(root))
    teacher = write_model(folder / "model")
    (teacher / "model.safetensors").unlink()
    place = folder / "cache"
    import_tokens(into(root, place, ("teacher.model", f"hf:{teacher}")), folder / "a.npz")
    return lambda *overrides: (place, into(root, place, ("teacher.model", f"hf:{teacher}"), *overrides))


def test_an_imported_cache_is_verified_without_weights(imported):
    report = verify_token_cache(*imported())
    assert report.passes
    assert report.rows_recomputed == 0


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("packing.length=15", r"preprocessing\.packing\.length: expected 15, found 16"),
        ("documents.begin=null", r"dataset_fingerprint: expected"),
        ("teacher.top_k=4", r"something else: top_k: expected 4, found 8$"),
        ("teacher.top_p=0.5", r"something else: top_p: expected 0\.5, found nothing$"),
        ("teacher.cache_dtype=float16", r"something else: dtype: expected 'float16', found 'float32'$"),
    ],
)
def test_an_imported_cache_of_something_else_is_refused_by_name(imported, override, message):
    with pytest.raises(InputError, match=message):
        verify_token_cache(*imported(override))
    with pytest.raises(InputError, match=message):
        open_text_cache(imported(override)[1])


def test_an_imported_cache_of_another_tokeniser_or_text_is_refused(imported, tmp_path):
    words = write_model(tmp_path / "words", vocabulary=290)
    with pytest.raises(InputError, match=r"preprocessing\.tokenizer: expected"):
        verify_token_cache(*imported(("teacher.model", f"hf:{words}")))
    other = write_text(tmp_path / "other.txt", seed=1)
    with pytest.raises(InputError, match=r"dataset_fingerprint: expected"):
        verify_token_cache(*imported(("documents.path", str(other))))


def test_a_cache_that_only_claims_to_be_of_this_text_is_refused(root, tmp_path):
    config = into(root, tmp_path)
    text, given = load_text(config), arrays(root)
    tokens = text.blocks.tokens.copy()
    tokens[0, 0] += 1  # predicted by nothing
    write_token_cache(
        tmp_path,
        tokens,
        {name: given[name] for name in COLUMNS},
        num_classes=300,
        top_k=8,
        documents=text.blocks.documents,
        blocks=text.blocks.numbers,
        dataset=text.documents_sha256,
        dtype="float32",
        **text.preprocessing,
    )
    with pytest.raises(InputError, match=r"tokens: expected those of the text at hand, found others"):
        verify_token_cache(tmp_path, config)


def test_damage_of_an_imported_cache_is_reported(imported, tmp_path):
    place, config = imported()
    shutil.copytree(place, tmp_path / "cache")
    shard = tmp_path / "cache" / "shard-00000.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    report = verify_token_cache(tmp_path / "cache", config)
    assert not report.passes
    assert "shard-00000.safetensors" in report.problems[0]
