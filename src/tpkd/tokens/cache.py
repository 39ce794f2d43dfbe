"""`tpkd cache` for a language model: what its cache holds, built, verified and opened as a configuration says."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tpkd.config.loading import ConfigError, expand_data, keyed
from tpkd.config.tokens import DocumentsConfig, LanguageModelConfig, TokensConfig
from tpkd.errors import InputError
from tpkd.models.language import language_source, load_language_model, load_tokenizer
from tpkd.models.weights import weights_fingerprint
from tpkd.teacher.cache.build import BuildProgress, build_cache
from tpkd.teacher.cache.description import kept_sentence
from tpkd.teacher.cache.keys import check_width
from tpkd.teacher.cache.parts import Part
from tpkd.teacher.cache.recipe import CacheRecipe, is_imported, library_versions
from tpkd.teacher.cache.rows import CacheRows
from tpkd.teacher.cache.shards import SHARD_BYTES
from tpkd.teacher.cache.tokens import TokenCache, open_token_cache
from tpkd.teacher.cache.verify import VerifyReport, cache_info, verify_cache
from tpkd.teacher.tokenizers import tokenizer_sha256
from tpkd.tokens.documents import documents_sha256, read_documents
from tpkd.tokens.packing import RULE, Blocks, pack

OnNote = Callable[[str], None]
"""Called with a sentence for the user."""


@dataclass(frozen=True)
class Text:
    """Blocks of text, and what they were made from."""

    blocks: Blocks
    documents_sha256: str
    num_documents: int
    tokenizer: Any
    preprocessing: dict[str, Any]
    """Tokeniser and packing, as a recipe has them."""

    def rows(self) -> CacheRows:
        """The rows of a cache.

        Raises:
            InputError: documents are of so different lengths that an index by document would be nearly empty.
        """
        blocks, tokens = self.blocks, self.blocks.tokens
        found = len(np.unique(blocks.documents)), len(blocks), int(blocks.numbers.min()), int(blocks.numbers.max())
        try:
            check_width(*found)
        except ValueError as error:
            raise ConfigError(
                f"documents: expected documents of comparable lengths, found one of {found[3] + 1} blocks among "
                f"{found[0]} in {found[1]} blocks; cut long ones by documents.begin, or join short ones"
            ) from error
        return CacheRows(blocks.documents, blocks.numbers, lambda a, b: torch.from_numpy(tokens[a:b]), tokens=tokens)


def load_text(config: TokensConfig, documents: DocumentsConfig | None = None, limit: int | None = None) -> Text:
    """The text of a configuration as blocks: the one to learn from, or other documents packed by the same rule.

    Args:
        config: which tokeniser, which packing, and unless other documents are given, which text.
        documents: other text.
        limit: the most blocks to take of it.
    """
    teacher, packing = config.teacher, config.packing
    chosen = config.documents if documents is None else documents
    with keyed("documents"):
        texts = read_documents(Path(expand_data(chosen.path)), chosen.begin)
    with keyed("teacher"):
        tokenizer = load_tokenizer(expand_data(language_source(teacher.model)), teacher.gguf)
    with keyed("packing"):
        separator = _separator(tokenizer, packing.separator)
        found = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
        blocks = pack(found, packing.length, separator)
    most = config.limit if documents is None else limit
    rule = {"rule": RULE, "length": packing.length, "separator": separator, "begin": chosen.begin, "limit": most}
    return Text(
        blocks=blocks if most is None else blocks.first(most),
        documents_sha256=documents_sha256(texts),
        num_documents=len(texts),
        tokenizer=tokenizer,
        preprocessing={"tokenizer": tokenizer_sha256(tokenizer), "packing": rule},
    )


def _separator(tokenizer: Any, asked: str | None) -> int:
    if asked is None:
        if tokenizer.eos_token_id is None:
            raise InputError("separator: missing, and the tokeniser has no end-of-text token")
        return int(tokenizer.eos_token_id)
    number = tokenizer.get_vocab().get(asked)
    if number is None:
        raise InputError(f"separator: expected a token of the tokeniser, found {asked!r}")
    return int(number)


def teacher_model(section: LanguageModelConfig) -> nn.Module:
    """The language model that a section names."""
    with keyed("teacher"):
        return load_language_model(expand_data(language_source(section.model)), section.gguf)


@dataclass(frozen=True)
class TokenPlan:
    """What a build computes and where it goes."""

    directory: Path
    text: Text
    rows: CacheRows
    recipe: CacheRecipe
    model: nn.Module

    def forward(self, tokens: Tensor) -> dict[str, Tensor]:
        """What the teacher says about every token but the first."""
        device = next(self.model.parameters()).device
        return {"logits": self.model(input_ids=tokens[:, :-1].to(device), use_cache=False).logits.float()}


def plan_token_cache(config: TokensConfig, *, held_out: bool = False) -> TokenPlan:
    """What the cache of a configuration holds: every block of its text, or of its held-out text.

    Raises:
        InputError: a file or a key is not as it must be.
    """
    text, directory = _text_and_place(config, held_out)
    model = teacher_model(config.teacher)
    model = model.to("cuda" if torch.cuda.is_available() else "cpu")
    return TokenPlan(directory, text, text.rows(), _recipe(config, text, model), model)


def _text_and_place(config: TokensConfig, held_out: bool) -> tuple[Text, Path]:
    if not held_out:
        return load_text(config), Path(expand_data(config.teacher.cache))
    if config.evaluation is None:
        raise InputError("evaluation: missing, and it names the held-out text")
    predictions = config.packing.length - 1
    limit = -(-config.evaluation.tokens // predictions)
    return load_text(config, config.evaluation.documents, limit), Path(expand_data(config.evaluation.cache))


def _recipe(config: TokensConfig, text: Text, model: nn.Module) -> CacheRecipe:
    configuration: Any = model.config
    num_classes = int(configuration.vocab_size)
    size = len(text.tokenizer)
    if size > num_classes:
        raise InputError(
            f"teacher: expected at most {num_classes} tokens, as the model has, found {size} in the tokeniser"
        )
    teacher = config.teacher
    return CacheRecipe(
        model_fingerprint=weights_fingerprint(model),
        dataset_fingerprint=text.documents_sha256,
        preprocessing=text.preprocessing,
        class_map=None,
        num_classes=num_classes,
        dtype=teacher.cache_dtype,
        versions=library_versions(),
        top_k=min(teacher.top_k, num_classes),
        positions=config.packing.length - 1,
        top_p=teacher.top_p,
    )


def build_token_cache(
    config: TokensConfig,
    *,
    held_out: bool = False,
    part: Part | None = None,
    shard_bytes: int = SHARD_BYTES,
    on_progress: Callable[[BuildProgress], None] | None = None,
    on_note: OnNote = lambda sentence: None,
) -> Path:
    """Build the cache of a language model, or finish it; returns its directory.

    Args:
        config: the run that will read the cache.
        held_out: build that of the held-out text, which an evaluation compares students with.
        part: build this part alone; `merge_parts` joins all of them.
        shard_bytes: the most that a file of a new cache takes.
        on_progress: told how far the build is.
        on_note: told what was found in the text, and what the cache keeps.
    """
    plan = plan_token_cache(config, held_out=held_out)
    tokens = plan.text.blocks.tokens
    on_note(
        f"{plan.text.num_documents:,} documents, {len(tokens):,} blocks, {tokens.size - len(tokens):,} predictions."
    )
    on_note(kept_sentence(plan.recipe, len(plan.rows)))
    directory = plan.directory if part is None else part.place(plan.directory)
    build_cache(
        directory,
        plan.rows,
        plan.forward,
        plan.recipe,
        part=part,
        shard_bytes=shard_bytes,
        block_rows=config.teacher.batch_size,
        model_source=_source(config),
        on_progress=on_progress,
    )
    return directory


def _source(config: TokensConfig) -> str:
    """The name of the model, without the folder of a machine."""
    source = language_source(config.teacher.model)
    return f"{Path(source).name}{f'/{config.teacher.gguf}' if config.teacher.gguf else ''}"


def verify_token_cache(directory: str | Path, config: TokensConfig, *, sample: int = 32) -> VerifyReport:
    """Check the bytes of a language model's cache, its recipe, and compute some blocks again.

    Of an imported cache no network is known: its text, tokeniser, packing and truncation are compared, and the weights
    of the teacher are not needed.

    Raises:
        InputError: there is no cache, or it was computed from something else than the configuration says.
    """
    held_out = config.evaluation is not None and _is_same(directory, config.evaluation.cache)
    found = cache_info(directory).recipe
    if is_imported(found):
        text, _ = _text_and_place(config, held_out)
        _refuse_differences(directory, _asked(config, text, found), found)
        report = verify_cache(directory)
        if report.passes:
            _check_tokens(open_token_cache(directory, check=False), text)
        return report
    plan = plan_token_cache(config, held_out=held_out)
    _refuse_differences(directory, plan.recipe, found)
    return verify_cache(directory, forward=plan.forward, rows=plan.rows, sample=sample)


def _is_same(directory: str | Path, named: str) -> bool:
    return Path(directory).resolve() == Path(expand_data(named)).resolve()


def open_text_cache(config: TokensConfig, *, held_out: bool = False) -> tuple[TokenCache, Text]:
    """Open the cache of a configuration's text, bound to text, tokeniser, packing and truncation.

    The teacher is not built, so that its weights are not compared.

    Raises:
        InputError: it was computed from something else, which is named, is not finished, or is damaged.
    """
    text, directory = _text_and_place(config, held_out)
    found = cache_info(directory).recipe
    _refuse_differences(directory, _asked(config, text, found), found)
    cache = open_token_cache(directory)
    _check_tokens(cache, text)
    return cache, text


def _asked(config: TokensConfig, text: Text, found: CacheRecipe) -> CacheRecipe:
    """What a configuration asks of a cache, as far as it is known without the teacher's network."""
    teacher = config.teacher
    return replace(
        found,
        dataset_fingerprint=text.documents_sha256,
        preprocessing=text.preprocessing,
        dtype=teacher.cache_dtype,
        top_k=min(teacher.top_k, found.num_classes),
        top_p=teacher.top_p,
    )


def _refuse_differences(directory: str | Path, expected: CacheRecipe, found: CacheRecipe) -> None:
    differences = expected.differences(found)
    if not differences:
        return
    other_tokenizer = any(difference.startswith("preprocessing.tokenizer:") for difference in differences)
    way_out = f"; {_FORMATS}" if other_tokenizer else ""
    raise InputError(f"{directory}: this cache was computed from something else: {'; '.join(differences)}{way_out}")


_FORMATS = (
    "a GGUF file and a folder of the hub may hold one tokeniser in two forms: name by teacher.model and teacher.gguf "
    "the one that the cache was made with"
)


def _check_tokens(cache: TokenCache, text: Text) -> None:
    found = cache.tokens(cache.documents, cache.blocks).numpy()
    if not np.array_equal(found, text.blocks.tokens):
        raise InputError(f"{cache.directory}: tokens: expected those of the text at hand, found others")
