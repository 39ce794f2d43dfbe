"""`load_student`: network, preprocessing and class names of a finished run in one object."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors import safe_open
from torch import Tensor

from tpkd.class_names import check_class_names, recorded_names
from tpkd.config.loading import load_config
from tpkd.config.schema import RunConfig
from tpkd.data.batches import ModelInputs, Preparation
from tpkd.data.slicing import to_device
from tpkd.errors import InputError, reason
from tpkd.files import reading
from tpkd.models.classifier import Classifier
from tpkd.models.weights import load_weights, weights_fingerprint
from tpkd.student.inputs import check_sequence, prepare
from tpkd.student.network import build_network, build_preparation
from tpkd.student.recipe import RECIPE_NAME, StudentRecipe, read_recipe, recipe_of_run
from tpkd.training.directory import CONFIG_NAME, RESULT_NAME, STUDENT_NAME, RunResult, read_result

BATCH_SIZE = 256


@dataclass(frozen=True)
class Predictions:
    """What a student says about some inputs, in their order."""

    labels: tuple[str, ...]
    """The name of the most probable class of each input."""
    indices: Int[Tensor, "N"]
    """Its position in the student's `class_names`."""
    probabilities: Float[Tensor, "N K"]
    margins: Float[Tensor, "N"]
    """Largest logit minus the next: the log of how many times more probable the first class is than the second."""
    logits: Float[Tensor, "N K"] = field(repr=False)

    def __len__(self) -> int:
        """Number of inputs."""
        return len(self.labels)


@dataclass(frozen=True)
class Student:
    """A trained network with what belongs to it.

    `module` is in evaluation mode; move it with `student.module.to(device)` and inputs follow.
    """

    module: Classifier = field(repr=False)
    class_names: tuple[str, ...]
    recipe: StudentRecipe = field(repr=False)
    preparation: Preparation = field(repr=False)
    folder: Path
    """Where it was loaded from."""

    def preprocess(self, inputs: Sequence[Any] | np.ndarray) -> ModelInputs:
        """Raw inputs as the network takes them.

        Args:
            inputs: texts; images as uint8 `(N, H, W, channels)` or a list of arrays, Pillow images or paths; vectors
                `(N, D)`. Grey arrays may leave out their channel; files and Pillow images become RGB.

        Returns:
            Images `(N, channels, S, S)`, vectors `(N, D)`, or `input_ids` and `attention_mask`, both `(N, T)`.
        """
        return prepare(inputs, self.recipe.kind, self.preparation)

    def predict(self, inputs: Sequence[Any] | np.ndarray, *, batch_size: int = BATCH_SIZE) -> Predictions:
        """Classes by name, probabilities and margins of raw inputs, as `preprocess` takes them.

        Shapes: N inputs and K classes give probabilities `(N, K)` and margins `(N)`.

        Raises:
            InputError: an input that is not of the run's kind, or on which the network gives NaN.
        """
        check_sequence(inputs, self.recipe.kind)
        starts = range(0, max(len(inputs), 1), batch_size)
        batches = (self.preprocess(inputs[start : start + batch_size]) for start in starts)
        return self.read_off(torch.cat(list(self.logits(batches))))

    @torch.no_grad()
    def logits(self, batches: "Iterator[ModelInputs]") -> Iterator[Float[Tensor, "N K"]]:
        """Logits in float32 on the CPU of inputs that are preprocessed, one batch at a time."""
        weight = self.module.classifier.weight
        for inputs in batches:
            try:
                found = self.module(to_device(inputs, weight.device))
            except torch.OutOfMemoryError:
                raise
            except (ValueError, RuntimeError, IndexError, TypeError, AssertionError) as error:  # networks raise these
                raise InputError(f"inputs: do not fit {self.recipe.model}: {reason(error)}") from error
            yield found.float().cpu()

    def read_off(self, logits: Float[Tensor, "N K"]) -> Predictions:
        """Names, probabilities and margins of logits `(N, K)`."""
        wrong = (~logits.isfinite().all(-1)).nonzero().flatten().tolist()
        if wrong:
            raise InputError(f"inputs[{wrong[0]}]: expected finite logits, found NaN or infinity; look at this input")
        first, second = logits.topk(2, dim=-1).values.unbind(-1)
        indices = logits.argmax(-1)
        names = tuple(self.class_names[index] for index in indices.tolist())
        return Predictions(names, indices, logits.softmax(-1), first - second, logits)


def load_student(run_directory: str | Path) -> Student:
    """The student of a finished run, ready to predict; neither its teacher nor its data are needed.

    Args:
        run_directory: what `tpkd train` made, or a folder of `tpkd export --format safetensors`.

    Returns:
        A student with `.module`, `.class_names`, `.preprocess(inputs)` and `.predict(inputs)`.

    Raises:
        InputError: not a run, not finished, weights that are damaged or not those of the run, or other classes.

    Example:
        >>> load_student("/no/such/run")
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: /no/such/run: expected a run directory or an exported student, found nothing
    """
    folder = Path(run_directory)
    recipe = None if (folder / CONFIG_NAME).exists() else read_recipe(folder)
    if recipe is None:
        config, result = read_run(folder)
        recipe = recipe_of_run(config, _class_names(folder, result), result.kept_fingerprint)
        recipe = _with_input_size(recipe, folder / STUDENT_NAME)
    path = folder / STUDENT_NAME
    names = recorded_names(path)
    check_class_names(names, recipe.class_names, found_in=str(path), expected_in=f"the records of {folder}")
    module = build_network(recipe, folder)
    load_weights(module, path)
    found = weights_fingerprint(module)
    if found != recipe.weights_fingerprint:
        raise InputError(
            f"{path}: damaged or replaced: expected weights with the fingerprint {recipe.weights_fingerprint[:16]} of "
            f"its records, found {found[:16]}"
        )
    module.untrained, module.class_names = None, recipe.class_names
    return Student(module.eval(), recipe.class_names, recipe, build_preparation(recipe, folder), folder)


def read_run(directory: Path) -> tuple[RunConfig, RunResult]:
    """The configuration and the result of a finished run.

    Raises:
        InputError: not a run, or not finished; then the command that finishes it.
    """
    path = directory / CONFIG_NAME
    if not path.exists():
        found = f"neither {CONFIG_NAME} nor a {RECIPE_NAME} of ours in it" if directory.is_dir() else "nothing"
        raise InputError(f"{directory}: expected a run directory or an exported student, found {found}")
    config, result = load_config(path), read_result(directory)
    if result is None:
        command = shlex.join(["tpkd", "train", str(path), f"output={directory}"])
        raise InputError(f"{directory}: expected a finished run, found no {RESULT_NAME}; `{command}` finishes it")
    return config, result


def _with_input_size(recipe: StudentRecipe, weights: Path) -> StudentRecipe:
    """The recipe of an MLP that took its input size from its data, as its weights have it."""
    if recipe.model != "builtin:mlp" or "input_size" in recipe.options:
        return recipe
    with reading(weights), safe_open(weights, "pt") as file:
        first = "layers.0.weight" if "layers.0.weight" in file.keys() else "fc.weight"  # noqa: SIM118 (not a dict)
        size = file.get_slice(first).get_shape()[1]
    return replace(recipe, options=recipe.options | {"input_size": size})


def _class_names(folder: Path, result: RunResult) -> tuple[str, ...]:
    names = result.class_names or recorded_names(folder / STUDENT_NAME)
    if names is None:
        raise InputError(
            f"{folder}: expected class names in {RESULT_NAME} or {STUDENT_NAME}, found none; train it anew"
        )
    return names
