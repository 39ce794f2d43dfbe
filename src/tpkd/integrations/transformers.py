"""Distillation in Hugging Face's `Trainer`: its loop, checkpoints and logs, our objectives and teachers.

`pip install 'tpkd[text,train]'`: transformers, and accelerate, without which no Trainer starts.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tpkd.errors import InputError, extra
from tpkd.geometry.top_k import TopK
from tpkd.integrations.classes import check_classes
from tpkd.integrations.common import (
    LOGITS_AND_LABELS,
    TeacherLike,
    build_batch,
    choose_objective,
    choose_teacher,
    move_logits,
    total_loss,
)
from tpkd.integrations.labels import FirstLook, is_soft, valid_positions
from tpkd.integrations.next_tokens import SHIFTED
from tpkd.integrations.transformers_language import BOUNDARIES, POSITIONS, LanguageOptions, LanguageTask
from tpkd.integrations.transformers_models import language_kind, named_inputs, variadic_inputs
from tpkd.integrations.transformers_monitor import MonitorCallback
from tpkd.integrations.vocabulary import TOKENS, check_images, check_length, check_tokens, positions_of
from tpkd.objectives import Objective
from tpkd.objectives.reduction import IGNORE_INDEX
from tpkd.objectives.registry import create
from tpkd.teacher.teacher import OnlineTeacher, logits_of

with extra("text"):
    from transformers import Trainer

__all__ = ["DistillationTrainer", "MonitorCallback"]

SAMPLE_ID, VIEW_ID = "sample_id", "view_id"
"""The columns by which a teacher cache is read; the second only where samples have several views, or texts blocks."""
_KEYS = frozenset({SAMPLE_ID, VIEW_ID})
_NO_TEACHER = "teacher: expected a model or a teacher cache, because MonitorCallback compares with it"


class DistillationTrainer(Trainer):  # type: ignore[misc]
    """Hugging Face's `Trainer` with a teacher: for classification, and for causal and masked language models.

    The loss is divided by the count of valid positions (labels other than -100) over all micro-batches and processes,
    so accumulation and data parallelism give the gradient of the whole batch under any mask. The student runs through
    its wrapper; the teacher is frozen, in evaluation mode, on the Trainer's device, and no checkpoint holds it.
    `eval_loss` is the student's cross-entropy whatever the objective: evaluation asks no teacher, and its numbers
    compare with those of plain fine-tuning.

    Labels may be probabilities of the shape of the logits, as a collator that mixes its samples makes them, for
    objectives that take them; a row of zeros is ignored. Then no margin of TPKD between a class that the label allows
    and one that it does not is worse than after the step of the soft cross-entropy alone.

    A causal language model's labels are shifted once, here: `labels` are those of the tokens themselves. What is
    counted and learned are the positions of `tpkd.integrations.next_tokens.next_token_targets`, so documents that are
    packed into a row, or padded on the left, give the gradient of the same documents apart.

    Args:
        *args: those of `Trainer`.
        teacher: a network with the student's classes that takes the student's inputs; or a teacher cache, whole or
            truncated, open or by its directory, read by the data's column `sample_id` (and `view_id` where samples have
            several views, or texts several blocks).
        objective: a name of `tpkd.objectives.names()` or an objective, of those that need logits and labels.
        objective_settings: settings of an objective given by name.
        teacher_processing_class: the tokenizer or image processor the teacher was trained with, to be compared with
            `processing_class`, by which the data of both are prepared.
        check_inputs: whether to refuse a teacher whose vocabulary, positions or image statistics are known not to fit
            the student's inputs. False where you made sure of it yourself.
        top_k: of a language model: take only so many of the teacher's largest classes, the label's and the total of
            the others, as a token cache keeps them. None for all.
        true_vocab_size: of a language model: how many classes are tokens, where the tables of student and teacher
            are padded to different sizes. Left out, it is taken from the tokenizers if both are given.
        linear_head: of a language model, with objective `"tpkd"`: compute the loss from the features of the output
            head, so that the student's logits are never held whole. The gradient is the same.
        **kwargs: those of `Trainer`.

    Raises:
        InputError: the objective needs what a Trainer cannot give or all classes of a truncated teacher, labels are
            smoothed, the student is set up for several labels at once, there are too few classes for the objective,
            or teacher, student and data speak of different classes or vocabularies.

    Example:
        >>> import tempfile
        >>> from transformers import BertConfig, BertForSequenceClassification, TrainingArguments
        >>> size = dict(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1)
        >>> student, teacher = (BertForSequenceClassification(BertConfig(**size, num_labels=4)) for _ in range(2))
        >>> args = TrainingArguments(tempfile.mkdtemp(), use_cpu=True, report_to="none")
        >>> trainer = DistillationTrainer(student, args, teacher=teacher, objective="tpkd")
        >>> batch = {"input_ids": torch.tensor([[1, 2], [3, 4]]), "labels": torch.tensor([0, 3])}
        >>> trainer.compute_loss(student, batch).requires_grad
        True
    """

    label_names: list[str]  # the Trainer's own

    def __init__(
        self,
        *args: Any,
        teacher: TeacherLike | None = None,
        objective: str | Objective = "tpkd",
        objective_settings: Mapping[str, Any] | None = None,
        teacher_processing_class: Any = None,
        check_inputs: bool = True,
        top_k: int | None = None,
        true_vocab_size: int | None = None,
        linear_head: bool = False,
        **kwargs: Any,
    ) -> None:
        """Set up the Trainer, then objective and teacher."""
        super().__init__(*args, **kwargs)
        self._refuse_what_changes_the_loss()
        gives = LOGITS_AND_LABELS | {"epoch"}
        self.objective = choose_objective(
            objective, objective_settings, host="a Trainer", has_teacher=teacher is not None, gives=gives
        )
        self._student_columns: frozenset[str] = frozenset()
        self._teacher_columns: frozenset[str] = frozenset()
        if teacher is not None:
            self._teacher_columns = named_inputs(teacher) if isinstance(teacher, nn.Module) else _KEYS
        self._teacher_positions: int | None = None
        self._look = FirstLook()
        self.teacher = choose_teacher(teacher, self.model, self.objective)
        if self.teacher is not None:
            self.teacher.to(self.args.device)
        self._language = self._language_task(
            LanguageOptions(top_k, true_vocab_size, linear_head),
            (self.processing_class, teacher_processing_class) if check_inputs else (None, None),
        )
        if self._language is None:
            self._check_classes()
        if check_inputs and isinstance(teacher, nn.Module):
            shared = None if self._language is None else self._language.shared
            self._check_inputs(teacher, teacher_processing_class, shared)
        if self.teacher is None and self._monitors:
            raise InputError(_NO_TEACHER)
        # A student without a loss of its own does not name labels, and the Trainer would drop them.
        self.label_names = self.label_names or ["labels"]
        # Or the Trainer would not count valid positions. Set last: its own constructor sets it from the model.
        self.model_accepts_loss_kwargs = True

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: int | Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Any]:
        """The objective on these inputs, divided by the count of valid positions or by their own."""
        count = None if num_items_in_batch is None else torch.as_tensor(num_items_in_batch).reshape(-1)[0]
        # Gradients are averaged over processes, and each of them has divided by the count of all.
        scale = 1 if count is None else self.accelerator.num_processes // self.get_tp_size()
        labels: Any = inputs.get("labels") if self._language is None else self._language.targets(inputs)
        if self._language is not None and self._language.head is not None and not return_outputs:
            return self._loss_of_features(self._language, model, inputs, labels, count) * scale
        outputs = model(**self._forward_inputs(inputs))
        logits = logits_of(outputs)
        looking = [monitor for monitor in self._monitors if monitor.looking]
        asked = looking or "teacher_logits" in self.objective.needs
        teacher_logits = self._ask_teacher(inputs, labels, logits) if asked else None
        self._look(self.objective, logits, labels, teacher_logits)
        epoch = 1 + int(self.state.epoch or 0)
        batch = build_batch(logits, labels, teacher_logits, num_items=count, epoch=epoch)
        loss = total_loss(self.objective, batch) * scale
        if teacher_logits is not None and labels is not None:
            self._show(looking, logits, teacher_logits, labels)
        if not return_outputs:
            return loss
        if isinstance(outputs, Mapping):
            return loss, outputs
        # The Trainer reads the loss first from anything that is not a mapping.
        return loss, (loss, *(outputs if isinstance(outputs, tuple | list) else (outputs,)))

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> Any:
        """Count what is learned: targets of a language model; of soft labels positions and not probabilities."""
        counted = batch_samples
        if self._language is not None:
            counted = [self._language.counted(batch) for batch in batch_samples]
        elif all(isinstance(batch, Mapping) and is_soft(batch.get("labels")) for batch in batch_samples):
            valid = (valid_positions(batch["labels"]) for batch in batch_samples)
            counted = [{"labels": torch.where(each, 0, IGNORE_INDEX)} for each in valid]
        return super()._get_num_items_in_batch(counted, device)

    def prediction_step(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Tensor | None, Any, Any]:
        """Logits and cross-entropy: no teacher is asked, so evaluation data need no sample ids."""
        objective, self.objective = self.objective, create("ce")
        try:
            inputs = self._student_inputs(inputs)
            if self._language is not None and "labels" not in inputs and SHIFTED in inputs:
                inputs["labels"] = inputs[SHIFTED]  # without labels a Trainer computes no loss
            if self._language is not None and self._language.head is not None and prediction_loss_only:
                inputs = self._prepare_inputs(inputs)
                with torch.no_grad(), self.compute_loss_context_manager():
                    targets = self._language.targets(inputs)
                    given = self._forward_inputs(inputs)
                    return self._language.feature_cross_entropy(model, given, targets), None, None
            found: tuple[Tensor | None, Any, Any] = super().prediction_step(
                model, inputs, prediction_loss_only, ignore_keys=ignore_keys
            )
            return found
        finally:
            self.objective = objective

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log, a training entry with what monitors saw since the last one."""
        if "loss" in logs:
            for monitor in self._monitors:
                logs = logs | monitor.means.take(self.accelerator.reduce)
        super().log(logs, start_time)

    @property
    def _monitors(self) -> list[MonitorCallback]:
        return [callback for callback in self.callback_handler.callbacks if isinstance(callback, MonitorCallback)]

    def _refuse_what_changes_the_loss(self) -> None:
        if self.args.label_smoothing_factor:
            raise InputError(
                f"label_smoothing_factor: expected 0, got {self.args.label_smoothing_factor}: a smoothed label gives "
                "every class mass and leaves none to protect against; leave it out, the teacher says how the other "
                "classes relate"
            )
        if self.compute_loss_func is not None:
            raise InputError("compute_loss_func: expected None: the objective is the loss; write it as an Objective")
        if self.args.world_size * max(self.args.n_gpu, 1) > 1 and not self.args.average_tokens_across_devices:
            raise InputError(
                "average_tokens_across_devices: expected True, because the mean of the means of several processes "
                "is not the mean of the batch"
            )
        kind = getattr(getattr(self.model, "config", None), "problem_type", None)
        if kind not in (None, "single_label_classification"):
            raise InputError(
                f"problem_type: expected 'single_label_classification', got {kind!r}: the objective compares classes "
                "of which one is correct; labels may be classes, or probabilities that sum to one per sample"
            )

    def _check_classes(self) -> None:
        """Compare what student, teacher and training data say of their classes, if anything."""
        online = isinstance(self.teacher, OnlineTeacher)
        check_classes(
            self.objective,
            ("model.config.id2label", self.model),
            ("teacher.config.id2label" if online else "teacher cache", self.teacher and self.teacher.about),
            ("train_dataset", self.train_dataset),
            way_out="bring all into one order, and give classes that mean the same one name (id2label of a "
            'configuration; dataset.cast_column("label", ClassLabel(names=...)) where labels were renumbered)',
        )

    def _language_task(self, options: LanguageOptions, processors: tuple[Any, Any]) -> LanguageTask | None:
        """What is particular to a language model; None for a classifier."""
        kind = language_kind(self.model, loss_shifts_labels=getattr(self, "_loss_shifts_labels", False))
        if kind is None:
            options.refuse()
            return None
        if options.linear_head and self.model_init is not None:
            raise InputError(
                "linear_head: expected a student given as model=, because model_init makes another one when training "
                "begins, with another output head"
            )
        if options.linear_head and (self.args.n_gpu > 1 or self.args.torch_compile):
            raise InputError(
                "linear_head: expected a student that is neither compiled nor copied to several GPUs of one process; "
                "start one process per GPU (torchrun, accelerate launch), without torch_compile"
            )
        return LanguageTask(kind, self.model, self.teacher, self.objective, options, processors)

    def _check_inputs(self, teacher: nn.Module, processing_class: Any, true_vocab_size: int | None) -> None:
        """Compare what the two networks make of the same columns."""
        check_images(self.processing_class, processing_class)
        # A teacher that names other columns has its own tokens; one that names nothing gets the student's.
        if not self._teacher_columns or TOKENS in self._teacher_columns:
            processors = (self.processing_class, processing_class)
            check_tokens(self.model, teacher, *processors, true_vocab_size=true_vocab_size)
            self._teacher_positions = positions_of(teacher)

    def _set_signature_columns_if_needed(self) -> None:
        """Keep in the data what the teacher reads, beside what the student reads."""
        known = self._signature_columns is not None
        super()._set_signature_columns_if_needed()
        if not known:
            labels = {"label", "label_ids", *self.label_names}
            found = frozenset(self._signature_columns) | named_inputs(self.model)
            self._student_columns = found - labels - variadic_inputs(self.model)
            read = self._student_columns | self._teacher_columns
            self._signature_columns += sorted(read - set(self._signature_columns))

    def _student_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        self._set_signature_columns_if_needed()
        # A student that names nothing takes whatever comes; what a cache is read by is never meant for it.
        foreign = self._teacher_columns - self._student_columns if self._student_columns else _KEYS
        return {name: value for name, value in inputs.items() if name not in foreign}

    def _forward_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """What the student is called with: without labels it returns logits alone, and computes no loss in vain."""
        more = {} if self._language is None else self._language.extra
        hidden = ("labels",) if self._language is None else ("labels", SHIFTED)
        return {name: value for name, value in self._student_inputs(inputs).items() if name not in hidden} | more

    def _loss_of_features(
        self, task: LanguageTask, model: nn.Module, inputs: Mapping[str, Any], targets: Tensor, count: Tensor | None
    ) -> Tensor:
        """The loss of a language model by the features of its head; the teacher is asked first."""
        teacher = self._ask_teacher(inputs, targets, None)
        self._look(self.objective, targets, targets, teacher)  # of logits it would look at the shape alone
        looking = [monitor for monitor in self._monitors if monitor.looking]
        watches = [task.watch(monitor.means, self.objective.step_temperature) for monitor in looking]
        given = self._forward_inputs(inputs)
        return task.feature_loss(model, given, teacher, targets, self.objective, count, watches)

    def _show(self, looking: list[MonitorCallback], logits: Tensor, teacher: Tensor | TopK, labels: Tensor) -> None:
        """Let monitors look at a step."""
        for monitor in looking:
            if self._language is None:
                monitor.means.add(logits, teacher, labels, temperature=self.objective.step_temperature)
            else:
                self._language.watch(monitor.means, self.objective.step_temperature).all(logits, teacher, labels)

    def _ask_teacher(
        self, inputs: Mapping[str, Any], labels: Tensor | None, student_logits: Tensor | None
    ) -> Tensor | TopK:
        if self.teacher is None:  # a monitor that was added later
            raise InputError(_NO_TEACHER)
        if isinstance(self.teacher, OnlineTeacher):
            return self._ask_network(self.teacher, inputs, labels)
        if SAMPLE_ID not in inputs:
            raise InputError(
                f"{SAMPLE_ID}: expected this column in the training data, by which the teacher cache is read, found "
                f"{', '.join(inputs)}; give every sample its id, and let the data collator keep it"
            )
        keys = (inputs[SAMPLE_ID], inputs.get(VIEW_ID))
        if self._language is not None and labels is not None:
            return self._language.ask_cache(self.teacher, inputs, keys, labels)
        assert student_logits is not None
        if student_logits.ndim != 2:
            raise InputError(
                f"teacher: expected a model, because a cache holds one row per sample and the student returns logits "
                f"of shape {tuple(student_logits.shape)}"
            )
        return move_logits(self.teacher.answer(None, *keys).logits, student_logits.device)

    def _ask_network(self, teacher: OnlineTeacher, inputs: Mapping[str, Any], labels: Tensor | None) -> Tensor | TopK:
        read = self._teacher_columns or self._student_columns or inputs.keys() - {"labels"}
        check_length(inputs.get(TOKENS), self._teacher_positions, inputs.get(POSITIONS))
        if self._teacher_columns and variadic_inputs(teacher.model):
            read = read | BOUNDARIES
        given = {name: value for name, value in inputs.items() if name in read}
        try:
            with self.accelerator.autocast():
                if self._language is not None and labels is not None:
                    return self._language.ask_network(teacher, given, inputs, labels)
                return teacher(given)
        except IndexError as error:
            raise InputError(
                "teacher: expected it to know every number of the student's inputs, found one beyond its tables "
                f"({error}): its vocabulary, positions or token types are fewer than the student's"
            ) from error
