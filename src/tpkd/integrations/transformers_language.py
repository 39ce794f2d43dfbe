"""What a step of a language model has beside that of a classifier: targets, answers about them, loss from features."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from tpkd.errors import InputError
from tpkd.geometry.top_k import EMPTY, TopK
from tpkd.integrations.common import MonitorMeans, move_logits
from tpkd.integrations.next_tokens import SHIFTED, causal_targets, refuse_shifted_labels
from tpkd.integrations.output_head import (
    chunked_logits,
    feature_cross_entropy,
    feature_loss,
    feature_top_k,
    head_computes,
    marked_logits,
    output_head,
    row_chunks,
    same_values,
    top_k_of_logits,
)
from tpkd.integrations.token_classes import on_student_tokens, shared_tokens, width_of
from tpkd.integrations.transformers_models import LanguageKind, base_model_of, named_inputs
from tpkd.integrations.vocabulary import TOKENS, check_true_size, compare_output_tokens
from tpkd.objectives import Objective
from tpkd.objectives.reduction import IGNORE_INDEX
from tpkd.objectives.tpkd import TPKD
from tpkd.teacher.cache.tokens import TokenCache
from tpkd.teacher.teacher import CachedTeacher, OnlineTeacher, Teacher, logits_of
from tpkd.teacher.tokenizers import tokenizer_sha256

POSITIONS = "position_ids"
BOUNDARIES = frozenset({"cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx"})
"""Where packed documents end, as some kernels of attention and recurrent layers are told; no network names them."""


@dataclass(frozen=True)
class LanguageOptions:
    """What a user may say of a language model beside teacher and objective."""

    top_k: int | None = None
    true_vocab_size: int | None = None
    linear_head: bool = False

    def refuse(self) -> None:
        """Refuse options for a network that is not a language model."""
        for name in ("top_k", "true_vocab_size", "linear_head"):
            if getattr(self, name) not in (None, False):
                raise InputError(f"{name}: expected none, because the student is a classifier and no language model")


class LanguageTask:
    """The targets of a language model, and its teacher's answers about them."""

    def __init__(
        self,
        kind: LanguageKind,
        student: nn.Module,
        teacher: Teacher | None,
        objective: Objective,
        options: LanguageOptions,
        processors: tuple[Any, Any] = (None, None),
    ) -> None:
        """Refuse what cannot be served before the first step.

        Args:
            kind: what the labels mean.
            student: the network that is trained.
            teacher: as chosen, or none.
            objective: what is trained.
            options: what the user said.
            processors: tokenizers of student and teacher, as far as they are known and to be compared.
        """
        base = base_model_of(student)
        self.kind, self.options = kind, options
        self.extra: dict[str, Any] = _without_cache(base)
        named = named_inputs(base)
        self._ignores_positions = type(base).__name__ if named and POSITIONS not in named else None
        self._is_shift_checked = False
        if getattr(getattr(base, "config", None), "output_router_logits", False):
            raise InputError(
                "output_router_logits: expected False, because the objective is the whole loss, and the balance of "
                "experts is not part of it; in TRL that is router_aux_loss_coef=0.0"
            )
        tokens = compare_output_tokens(*processors)
        self.num_classes, given = width_of(base), _width_of_teacher(teacher)
        check_true_size(options.true_vocab_size, processors[0], self.num_classes)
        differ = None not in (self.num_classes, given) and self.num_classes != given
        asked = options.true_vocab_size or (tokens if differ else None)
        self.shared = None if teacher is None else shared_tokens(self.num_classes, given, asked)
        self.head = self._find_head(base, objective) if options.linear_head else None
        # Whether the network of a head returns what the head makes, where that is known.
        self._returned: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
        self._check_top_k(teacher, objective)
        self._blocks = None
        if teacher is not None and not isinstance(teacher, OnlineTeacher):
            self._blocks = _open_blocks(teacher, kind, processors[0])

    def targets(self, inputs: Mapping[str, Any]) -> Int[Tensor, "batch length"]:
        """What the logits of each position are compared with, -100 where with nothing."""
        if self.kind == "causal":
            if POSITIONS in inputs and self._ignores_positions is not None:
                raise InputError(_reads_as_one("student", self._ignores_positions))
            if not self._is_shift_checked:
                refuse_shifted_labels(inputs)
                self._is_shift_checked = True
            return causal_targets(inputs)
        labels = inputs.get("labels")
        if not isinstance(labels, Tensor) or labels.is_floating_point():
            raise InputError(
                f"labels: expected the tokens that were masked, -100 elsewhere, found {', '.join(inputs)}; "
                "DataCollatorForLanguageModeling(tokenizer, mlm=True) makes them"
            )
        return labels

    def counted(self, batch: Mapping[str, Any]) -> dict[str, Tensor]:
        """A batch from which a Trainer counts targets, whether it would shift labels itself or not."""
        targets = self.targets(batch)
        return {"labels": targets, SHIFTED: targets}

    def ask_network(
        self, teacher: OnlineTeacher, inputs: Mapping[str, Any], given: Mapping[str, Any], targets: Tensor
    ) -> Float[Tensor, "batch length K"] | TopK:
        """The answers of a network about all positions, over the student's tokens.

        Args:
            teacher: the network.
            inputs: of these names it is called with.
            given: all inputs of the batch.
            targets: as `targets` returns them.
        """
        model = base_model_of(teacher.model)
        if POSITIONS in given and POSITIONS not in inputs:
            raise InputError(_reads_as_one("teacher", type(model).__name__))
        called = dict(inputs) | _without_cache(model)
        k = self.options.top_k
        if k is None:
            return on_student_tokens(teacher(called), self._width(), self.shared)
        found = self._ask_features(teacher, called, targets, k)
        return top_k_of_logits(teacher(called)[..., : self.shared], targets, k) if found is None else found

    def ask_cache(
        self, teacher: Teacher, inputs: Mapping[str, Any], keys: tuple[Tensor, Tensor | None], targets: Tensor
    ) -> Float[Tensor, "batch length K"] | TopK:
        """What a token cache kept of these blocks, over the student's tokens; nothing about the last token of a block.

        Raises:
            InputError: the texts of the batch are not those of the cache.
        """
        documents, blocks = keys[0].cpu(), torch.zeros_like(keys[0]) if keys[1] is None else keys[1]
        if self._blocks is None:  # somebody's own teacher
            found = teacher.answer(None, documents, blocks).logits
        else:
            _refuse_restarts(inputs.get(POSITIONS), self._blocks.length)
            found = self._blocks.read(documents, blocks.cpu(), inputs[TOKENS][:, : self._blocks.length])
        answers = move_logits(found, targets.device)
        missing = targets.shape[1] - answers.shape[1]
        if len(targets) != answers.shape[0] or missing < 0:
            raise InputError(
                f"{TOKENS}: expected {answers.shape[0]} blocks of {answers.shape[1] + 1} tokens, as the teacher saw "
                f"them, found a batch of shape {tuple(targets.shape)}"
            )
        if (targets[:, answers.shape[1] :] != IGNORE_INDEX).any():
            raise InputError(
                f"{TOKENS}: expected rows that end with their block of {answers.shape[1] + 1} tokens, found rows of "
                f"{targets.shape[1]} with labels behind it, of which the cache knows nothing: cut them there, or give "
                f"what follows the label {IGNORE_INDEX}"
            )
        return on_student_tokens(_with_more_positions(answers, missing), self._width(), self.shared)

    def feature_loss(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        teacher: Tensor | TopK,
        targets: Tensor,
        objective: Objective,
        num_items: Tensor | None,
        watches: "Sequence[Watch]" = (),
    ) -> Tensor:
        """The loss by the student's features: its logits exist a chunk of positions at a time."""
        assert self.head is not None
        assert isinstance(objective, TPKD)
        head, made = self.head, []

        def compute(features: Tensor) -> Tensor:
            loss = feature_loss(objective, features, head, teacher, targets, num_items)
            made.append(loss.detach())
            for part, logits in chunked_logits(features, head) if watches else ():
                for watch in watches:
                    watch(logits, teacher, targets, part)
            return loss

        with head_computes(head, compute):
            loss = logits_of(model(**inputs))
        self._check_returned(head, made[0], loss.detach())
        return loss

    def feature_cross_entropy(self, model: nn.Module, inputs: Mapping[str, Any], targets: Tensor) -> Tensor:
        """The cross-entropy of an evaluation, by the student's features."""
        assert self.head is not None
        head, made = self.head, list[Tensor]()

        def compute(features: Tensor) -> Tensor:
            made.append(feature_cross_entropy(features, head, targets))
            return made[0]

        with head_computes(head, compute):
            loss = logits_of(model(**inputs))
        self._check_returned(head, made[0], loss)
        return loss

    def watch(self, means: MonitorMeans, temperature: float) -> "Watch":
        """A monitor that looks at some rows at a time, and at tokens alone."""
        return Watch(means, temperature, self.shared)

    def _ask_features(self, teacher: OnlineTeacher, called: Mapping[str, Any], targets: Tensor, k: int) -> TopK | None:
        """The teacher's largest classes by the features of its head; None where its logits are not what that makes."""
        try:
            head = output_head(base_model_of(teacher.model))
        except InputError:
            return None
        known, found = self._returned.get(head), list[tuple[TopK, Tensor]]()
        if known is False:
            return None

        def keep(features: Tensor) -> Tensor:
            found.append((feature_top_k(features, head, targets, k, self.shared), marked_logits(features, head)))
            return found[-1][1]

        try:
            with head_computes(head, keep):
                answered = teacher.answer(called).all_logits("top_k")
        except (InputError, IndexError, RuntimeError):
            if known:
                raise
            # What comes after the head may refuse a single row. An error of another cause meets the whole logits too.
            self._returned[head] = False
            return None
        if known is None:
            self._returned[head] = same_values(found[0][1], answered)
        return found[0][0] if self._returned[head] else None

    def _check_returned(self, head: nn.Linear, made: Tensor, returned: Tensor) -> None:
        """Refuse a student that changes what its head makes; no step waits for a GPU after the first that shows it."""
        if self._returned.get(head):
            return
        if not same_values(made, returned):
            raise InputError(
                "linear_head: expected a network that returns what its output head makes, found one that changes it; "
                "leave linear_head out, which holds all logits"
            )
        # Zero, infinity and NaN stay what they are under a scale.
        if made.isfinite() and made != 0:
            self._returned[head] = True

    def _width(self) -> int:
        if self.num_classes is None:
            raise InputError("model: expected config.vocab_size, because true_vocab_size was given")
        return self.num_classes

    def _find_head(self, base: nn.Module, objective: Objective) -> nn.Linear:
        if type(objective) is not TPKD:
            raise InputError(
                f"linear_head: expected objective 'tpkd', found {objective.name!r}, whose loss needs all logits at "
                "once; leave linear_head out"
            )
        return output_head(base)

    def _check_top_k(self, teacher: Teacher | None, objective: Objective) -> None:
        k = self.options.top_k
        if k is None:
            return
        if not isinstance(teacher, OnlineTeacher):
            raise InputError("top_k: expected None, because a cache has its own and there is no network to ask")
        if not isinstance(k, int) or k < 1:
            raise InputError(f"top_k: expected at least 1, got {k}")
        if "teacher_logits" in objective.needs and not objective.takes_top_k:
            remedy = f"{objective.top_k_condition}, or " if objective.top_k_condition else ""
            raise InputError(
                f"top_k: objective {objective.name!r} needs all classes: {remedy}leave top_k out, or use an "
                "objective that takes it, such as tpkd"
            )


@dataclass(frozen=True)
class Watch:
    """Adds rows to the means of a monitor; rows of logits that are padding of a vocabulary are left out."""

    means: MonitorMeans
    temperature: float
    shared: int | None

    def __call__(self, logits: Float[Tensor, "rows K"], teacher: Tensor | TopK, targets: Tensor, part: slice) -> None:
        """Look at these rows, of which `teacher` and `targets` have all."""
        seen = teacher.rows()[part] if isinstance(teacher, TopK) else teacher.flatten(0, -2)[part, : self.shared]
        self.means.add(logits[:, : self.shared], seen, targets.flatten()[part], temperature=self.temperature)

    def all(self, logits: Float[Tensor, "*positions K"], teacher: Tensor | TopK, targets: Tensor) -> None:
        """Look at all rows, some at a time."""
        rows = logits.detach().flatten(0, -2)
        for part in row_chunks(*rows.shape):
            self(rows[part], teacher, targets, part)


def _reads_as_one(role: str, name: str) -> str:
    return (
        f"{POSITIONS}: expected a {role} that takes them, found {name}, which would read packed documents as one: "
        f"pack no documents, or choose another {role}"
    )


def _refuse_restarts(position_ids: Any, length: int) -> None:
    """Refuse documents that are kept apart within a block: the cached teacher read the block as one text."""
    if isinstance(position_ids, Tensor) and (position_ids[..., :length].diff(dim=-1) != 1).any():
        raise InputError(
            f"{POSITIONS}: expected none that start again within a block, because the cached teacher read each block "
            "from its beginning to its end; leave them out, or take a network as teacher"
        )


def _without_cache(model: nn.Module) -> dict[str, Any]:
    """A cache of keys and values costs memory, and with one transformers no longer sees where packed documents end."""
    return {"use_cache": False} if "use_cache" in named_inputs(model) else {}


def _width_of_teacher(teacher: Teacher | None) -> int | None:
    if isinstance(teacher, OnlineTeacher):
        return width_of(base_model_of(teacher.model))
    return getattr(teacher and teacher.about, "num_classes", None)


def _open_blocks(teacher: Teacher, kind: LanguageKind, tokenizer: Any) -> TokenCache | None:
    """The cache of text that a teacher reads; None where it is of another kind."""
    if kind == "masked":
        raise InputError(
            "teacher: expected a network, because other tokens are masked in each epoch and a cache knows of none"
        )
    if not isinstance(teacher, CachedTeacher):
        return None
    cache = TokenCache(teacher.cache)
    if cache.tokenizer_sha256 is not None and hasattr(tokenizer, "backend_tokenizer"):
        own = tokenizer_sha256(tokenizer)
        if own != cache.tokenizer_sha256:
            raise InputError(
                f"{cache.directory}: tokenizer: expected processing_class, {own[:12]}…, found "
                f"{cache.tokenizer_sha256[:12]}…: a token number means another text to each of them; build the cache "
                "with the tokenizer of the student, or check_inputs=False if you made sure that they agree"
            )
    return cache


def _with_more_positions(answers: Tensor | TopK, count: int) -> Tensor | TopK:
    """Positions at the end about which nothing is known: that of the last token, and padding."""
    if not count:
        return answers
    if isinstance(answers, Tensor):
        return pad(answers, (0, 0, 0, count))

    def longer(values: Tensor | None, fill: float) -> Tensor | None:
        return None if values is None else pad(values, (0, count), value=fill)

    return TopK(
        pad(answers.log_probs, (0, 0, 0, count), value=-torch.inf),
        pad(answers.indices.long(), (0, 0, 0, count), value=EMPTY),
        longer(answers.label_log_probs, torch.nan),
        longer(answers.rest_log_probs, -torch.inf),
    )
