"""The schema of a language model's distillation: text, packing, teacher with its cache, and a student's training."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from tpkd.config.output import fill_output
from tpkd.config.schema import ObjectiveConfig
from tpkd.config.section import (
    Count,
    CountOrZero,
    LocalPath,
    Model,
    NonNegativeReal,
    Output,
    PositiveReal,
    Section,
    Seed,
)

TOKENS_KEY = "documents"
"""The key at the top of a file by which such a configuration is known."""


def _check_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"expected a regular expression, found {pattern!r}: {error}") from error
    return pattern


Pattern = Annotated[str, AfterValidator(_check_pattern)]
Share = Annotated[float, Field(gt=0, lt=1)]


class DocumentsConfig(Section):
    """Texts: a file, or a folder of `.txt` files in the order of their names."""

    path: LocalPath
    begin: Pattern | None = None
    """A regular expression: a line that it matches as a whole begins a document; default: a file is a document."""


class PackingConfig(Section):
    """How documents become blocks: their tokens in a row, a separator after each, cut into blocks of equal length."""

    length: Annotated[int, Field(ge=2)] = 256
    """Tokens of a block; the last ones that do not fill a block are left out."""
    separator: str | None = None
    """The token after each document; default: the tokeniser's end-of-text token."""


class LanguageModelConfig(Section):
    """A causal language model with its tokeniser."""

    model: Model
    """`hf:PATH_OR_ID`."""
    gguf: str | None = None
    """The GGUF file in that folder from which transformers reads weights and tokeniser; needs the extra `tokens`."""


class TokenTeacherConfig(LanguageModelConfig):
    """The language model that teaches, and its cache."""

    cache: LocalPath
    """The directory of its cache."""
    top_k: Count = 64
    """How many of its largest classes the cache keeps of each token, with the label and the total of all others."""
    top_p: Share | None = None
    """Keep only as many of the `top_k` as have this share of the probability together; default: all of them."""
    cache_dtype: Literal["float16", "float32"] = "float16"
    batch_size: Count = 8
    """Blocks per forward pass."""


class TokenStudentConfig(Section):
    """The language model that learns."""

    model: Model | None = None
    """`hf:PATH_OR_ID`; default: the teacher's."""
    gguf: str | None = None
    layers: tuple[int, ...] = ()
    """Layers to keep, counted from 0; default: all."""


class TokenOptimizerConfig(Section):
    """torch's AdamW with a linear warm-up and a linear decay to zero."""

    learning_rate: PositiveReal = 3e-4
    betas: tuple[Share, Share] = (0.9, 0.95)
    weight_decay: NonNegativeReal = 0.0
    warmup: CountOrZero = 0
    """Steps."""
    clip_norm: PositiveReal | None = 1.0


class TokenEvaluationConfig(Section):
    """Text that no student learns from."""

    documents: DocumentsConfig
    cache: LocalPath
    """The directory of the teacher's cache of it, by which students are compared with the teacher."""
    tokens: Count = 50_000
    """How many tokens of it are predicted, from the first."""
    every: CountOrZero = 0
    """Steps between evaluations; 0 = before the first and after the last alone."""
    curve_tokens: Count = 5_000
    """How many tokens those in between predict."""
    start: LocalPath | None = None
    """A file for the margins of the student at its start, which runs of one start share; default: in the run
    directory."""


class TokensConfig(Section):
    """A language model's cache, and one student's training from it."""

    documents: DocumentsConfig
    packing: PackingConfig = PackingConfig()
    limit: Count | None = None
    """Maximum number of blocks, from the first; default: all."""
    teacher: TokenTeacherConfig
    output: Output | None = None
    """The run directory; `{objective}` and `{seed}` are replaced by their values. Only training needs it."""
    name: str | None = None
    """What `{objective}` and the tables call the run, if not the name of the objective."""
    student: TokenStudentConfig = TokenStudentConfig()
    objective: ObjectiveConfig = ObjectiveConfig(name="tpkd", settings={})
    optimizer: TokenOptimizerConfig = TokenOptimizerConfig()
    steps: Count = 1000
    batch_size: Count = 4
    """Blocks per optimiser step."""
    seed: Seed = 42
    """The order of the blocks."""
    checkpoint_every: Count = 50
    """Steps."""
    log_every: Count = 10
    evaluation: TokenEvaluationConfig | None = None
    methods: dict[str, dict[str, Any]] = Field({})
    """Settings by name of a run: dotted key -> value; `name=NAME` chooses one of them."""

    @model_validator(mode="before")
    @classmethod
    def _objective_by_name(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("objective"), str):
            return data | {"objective": {"name": data["objective"]}}
        return data

    @model_validator(mode="after")
    def _knows_its_method(self) -> Self:
        if self.methods and self.name is not None and self.name not in self.methods:
            raise ValueError(f"name: expected one of {', '.join(self.methods)}, found {self.name!r}")
        return self

    @property
    def run_name(self) -> str:
        """What tables call the run."""
        return self.name or self.objective.name

    @property
    def directory(self) -> str | None:
        """`output` with its placeholders filled in."""
        if self.output is None:
            return None
        return fill_output(self.output, {"{objective}": self.run_name, "{seed}": str(self.seed)})
