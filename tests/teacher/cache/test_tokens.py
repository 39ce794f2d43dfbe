"""A cache whose rows are blocks of text: written from arrays, read by (document, block)."""

import numpy as np
import pytest
import torch

from tpkd.errors import InputError
from tpkd.teacher.cache import build_cache, merge_parts, verify_cache
from tpkd.teacher.cache.parts import Part
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows
from tpkd.teacher.cache.tokens import open_token_cache, write_token_cache
from tpkd.teacher.cache.truncation import truncate_positions

CLASSES, LENGTH, BLOCKS, K = 90, 9, 14, 5
DOCUMENTS = np.array([0, 0, 0, 2, 3, 3, 3, 3, 5, 6, 6, 9, 9, 9])
NUMBERS = np.array([0, 1, 2, 0, 0, 1, 2, 3, 0, 0, 1, 0, 1, 2])
COLUMNS = ("log_probs", "indices", "label_log_probs", "rest_log_probs")


def text():
    return np.random.default_rng(0).integers(0, CLASSES, (BLOCKS, LENGTH))


def logits():
    return 3 * torch.randn(BLOCKS, LENGTH - 1, CLASSES, generator=torch.Generator().manual_seed(0))


def arrays(**changes):
    kept = truncate_positions(logits(), torch.from_numpy(text()[:, 1:]), K)
    return {name: getattr(kept, name).numpy() for name in COLUMNS} | changes


def write(directory, answers=None, tokens=None, **options):
    keys = {"documents": DOCUMENTS, "blocks": NUMBERS}
    options = {"num_classes": CLASSES, "top_k": K, "dtype": "float32"} | keys | options
    write_token_cache(directory, text() if tokens is None else tokens, answers or arrays(), **options)
    return directory


def rows():
    z, tokens = logits(), text()
    return CacheRows(DOCUMENTS, NUMBERS, lambda a, b: z[a:b], tokens=tokens)


def recipe(**changes):
    given = {"top_k": K, "positions": LENGTH - 1, "dtype": "float32"} | changes
    return CacheRecipe("weights", "text", {"tokenizer": "t"}, None, CLASSES, **given)


def build(directory, **options):
    changes = options.pop("changes", {})
    build_cache(directory, rows(), lambda z: {"logits": z}, recipe(**changes), **options)
    return directory


def test_what_is_read_is_what_was_written(tmp_path):
    cache = open_token_cache(write(tmp_path))
    expected = arrays()
    order = [7, 0, 13]
    found = cache.read(DOCUMENTS[order], NUMBERS[order], torch.from_numpy(text()[order]))
    for name in COLUMNS:
        assert torch.equal(getattr(found, name), torch.from_numpy(expected[name][order]))
    assert (len(cache), cache.length, cache.top_k, cache.num_classes) == (BLOCKS, LENGTH, K, CLASSES)
    assert cache.documents.tolist() == DOCUMENTS.tolist()
    assert cache.blocks.tolist() == NUMBERS.tolist()


def test_entry_t_is_about_token_t_plus_one(tmp_path):
    cache = open_token_cache(build(tmp_path))
    tokens = cache.tokens([3], [2])[0]
    found = cache.read([3], [2])
    log_probs = logits()[6].log_softmax(-1)
    expected = log_probs.gather(-1, tokens[1:, None].long())[:, 0]
    # A few roundings of float32 apart: the cache sums exponentials in another order.
    torch.testing.assert_close(found.label_log_probs[0], expected, rtol=1e-6, atol=1e-6)


def test_a_built_cache_and_one_from_arrays_hold_the_same(tmp_path):
    one, other = open_token_cache(build(tmp_path / "a")), open_token_cache(write(tmp_path / "b"))
    keys = DOCUMENTS, NUMBERS
    for name in COLUMNS:
        assert torch.equal(getattr(one.read(*keys), name), getattr(other.read(*keys), name))


def test_verification_recomputes_blocks(tmp_path):
    report = verify_cache(build(tmp_path), forward=lambda z: {"logits": z}, rows=rows())
    assert report.passes
    assert report.rows_recomputed == BLOCKS
    wrong = verify_cache(tmp_path, forward=lambda z: {"logits": z + 0.1 * z**2}, rows=rows())
    assert not wrong.passes


def test_parts_merge_to_the_same_bytes(tmp_path):
    whole = build(tmp_path / "whole", shard_rows=4)
    parts = [build(tmp_path / f"{number}", shard_rows=4, part=Part(number, 2)) for number in (1, 2)]
    merged = merge_parts(parts, tmp_path / "merged")
    for path in sorted(whole.glob("*.safetensors")):
        assert (merged / path.name).read_bytes() == path.read_bytes()


def test_top_p_leaves_places_empty_and_counts_them_to_the_rest(tmp_path):
    cache = open_token_cache(build(tmp_path, changes={"top_p": 0.5}))
    found = cache.read(DOCUMENTS, NUMBERS)
    probs = logits().softmax(-1)
    labels = torch.from_numpy(text()[:, 1:])
    for block in range(BLOCKS):
        for place in range(LENGTH - 1):
            p, kept, total = probs[block, place], [], 0.0
            for number in p.argsort(descending=True)[:K].tolist():
                if total >= 0.5:
                    break
                kept.append(number)
                total += float(p[number])
            indices = found.indices[block, place].tolist()
            assert indices == kept + [-1] * (K - len(kept))
            others = [float(p[c]) for c in range(CLASSES) if c not in kept and c != labels[block, place]]
            assert found.rest_log_probs[block, place].exp() == pytest.approx(sum(others), rel=1e-4)
    assert (found.indices == -1).any()
    assert verify_cache(tmp_path, forward=lambda z: {"logits": z}, rows=rows()).passes


def test_a_data_set_of_its_blocks(tmp_path):
    blocks = open_token_cache(write(tmp_path)).dataset()
    assert len(blocks) == BLOCKS
    sample = blocks[5]
    assert sample["input_ids"].tolist() == sample["labels"].tolist() == text()[5].tolist()
    assert (sample["sample_id"], sample["view_id"]) == (3, 1)


def test_other_tokens_are_refused_by_name(tmp_path):
    cache = open_token_cache(write(tmp_path))
    tokens = torch.from_numpy(text()[[6]])
    tokens[0, 4] += 1
    with pytest.raises(
        InputError, match=r"document 3, block 2, token 4: expected \d+, which the teacher saw, found \d+"
    ):
        cache.read([3], [2], tokens)
    with pytest.raises(InputError, match=r"expected blocks of 9 tokens, .* use the packing of the cache"):
        cache.read([3], [2], tokens[:, :-1])
    with pytest.raises(InputError, match=r"sample 1, view 0: no such row"):
        cache.read([1], [0])


def test_another_tokeniser_or_vocabulary_is_refused(tmp_path):
    write(tmp_path, tokenizer="a" * 64)
    assert open_token_cache(tmp_path, tokenizer="a" * 64, num_classes=CLASSES).tokenizer_sha256 == "a" * 64
    with pytest.raises(
        InputError, match=r"tokenizer: expected that of the student, bbbbbbbbbbbb…, found aaaaaaaaaaaa…"
    ):
        open_token_cache(tmp_path, tokenizer="b" * 64)
    with pytest.raises(InputError, match=r"expected at most the 80 classes of the student, found 90"):
        open_token_cache(tmp_path, num_classes=80)


def test_a_flipped_byte_is_refused_by_name(tmp_path):
    shard = build(tmp_path) / "shard-00000.safetensors"
    data = bytearray(shard.read_bytes())
    data[-3] ^= 1
    shard.write_bytes(data)
    with pytest.raises(InputError, match=r"shard-00000\.safetensors: expected SHA-256"):
        open_token_cache(tmp_path)


def test_another_text_does_not_continue_a_cache(tmp_path):
    write(tmp_path, dataset="text")
    tokens = text()
    tokens[0, 0] = (tokens[0, 0] + 1) % CLASSES
    with pytest.raises(InputError, match=r"tokens: expected those of the rows at hand, found others"):
        write(tmp_path, tokens=tokens, dataset="text")


def twice(indices):
    indices[2, 1, 1] = indices[2, 1, 0]
    return indices


WRONG = {
    "shape": ({"log_probs": arrays()["log_probs"][:, :-1]}, r"log_probs: expected shape"),
    "class": ({"indices": arrays()["indices"] + 60}, r"indices: expected classes from 0 to 89"),
    "twice": ({"indices": twice(arrays()["indices"])}, r"expected every class once"),
    "label": ({"label_log_probs": arrays()["label_log_probs"][::-1].copy()}, r"other text, another tokeniser"),
    "logits": (
        {name: arrays()[name] - arrays()["log_probs"].max() for name in ("log_probs", "label_log_probs")},
        r"block 0, token 1: expected log_probs, .* with a total probability of 1, found .*: are these logits",
    ),
    "rest": ({"rest_log_probs": arrays()["rest_log_probs"] - 1}, r"with a total probability of 1, found 0\.\d+"),
}


@pytest.mark.parametrize("name", WRONG)
def test_answers_that_do_not_fit_are_refused(tmp_path, name):
    changes, message = WRONG[name]
    with pytest.raises(InputError, match=message):
        write(tmp_path, arrays(**changes))


def test_answers_without_the_label_are_refused(tmp_path):
    answers = arrays()
    del answers["label_log_probs"]
    with pytest.raises(InputError, match=r"answers: expected log_probs, .* found no label_log_probs"):
        write(tmp_path, answers)


def test_a_cache_of_samples_is_not_one_of_text(tmp_path):
    samples = CacheRows([1, 2], [0, 0], lambda a, b: torch.zeros(b - a, 4))
    build_cache(tmp_path, samples, lambda z: {"logits": z}, CacheRecipe("m", "d", {}, None, 4))
    with pytest.raises(InputError, match=r"expected a cache of text, found one of samples"):
        open_token_cache(tmp_path)


def test_all_logits_of_every_token_can_be_kept(tmp_path):
    build(tmp_path, changes={"top_k": None})
    with pytest.raises(InputError, match=r"found one of all logits"):
        open_token_cache(tmp_path)
    from tpkd.teacher.cache import open_cache

    assert torch.equal(open_cache(tmp_path).read([3], [1]), logits()[[5]])


def test_tokens_must_be_classes(tmp_path):
    tokens = text()
    tokens[4, 0] = CLASSES
    with pytest.raises(ValueError, match=r"tokens: expected classes from 0 to 89, got 90 for sample 3, view 0"):
        write(tmp_path, tokens=tokens)
