"""The format `onnx`: one graph from preprocessed inputs to logits, compared with the student before it is published."""

import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tpkd.data.batches import ModelInputs
from tpkd.data.dataset import Dataset
from tpkd.errors import InputError, extra, reason
from tpkd.files import write_file
from tpkd.models.classifier import Classifier
from tpkd.student.checks import check_same_logits
from tpkd.student.loading import Student, read_run
from tpkd.student.network import save_tokenizer, tokenizer_source
from tpkd.student.prediction import open_data

GRAPH_NAME = "student.onnx"
DESCRIPTION_NAME = "student.json"
TOKENIZER_NAME = "tokenizer"
CHECKED_SAMPLES = 64
TOLERANCE = 1e-4
_TEXT_INPUTS = ("input_ids", "attention_mask")


class _Positional(nn.Module):
    """The network with one argument for each input, because a graph has no dictionaries."""

    def __init__(self, network: Classifier) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.network(inputs[0] if len(inputs) == 1 else dict(zip(_TEXT_INPUTS, inputs, strict=True)))
        return logits


def write_onnx(student: Student, folder: Path) -> list[str]:
    """Write `student.onnx`, `student.json` and, for texts, the tokenizer; the graph takes any number of rows.

    Returns:
        Notes for the model card.

    Raises:
        InputError: a library is missing, the run's data cannot be read, or torch cannot export the network.
        MismatchError: onnxruntime computes other logits.
    """
    with extra("export"):
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    samples = _samples(student)
    path = folder / GRAPH_NAME
    description = _describe(student, samples)
    _trace(student, samples, description, path)
    _compare(student, samples, path)
    write_file(folder / DESCRIPTION_NAME, json.dumps(description, indent=1, ensure_ascii=False) + "\n")
    source = tokenizer_source(student.recipe, student.folder) if student.recipe.kind == "text" else None
    if source is not None:
        save_tokenizer(source, folder / TOKENIZER_NAME, max_length=student.recipe.max_length)
    return [f"`{GRAPH_NAME}` takes preprocessed inputs and returns logits; `{DESCRIPTION_NAME}` describes both."]


def _samples(student: Student) -> dict[str, Tensor]:
    """Preprocessed test samples of the run, by the names of the graph's inputs."""
    config = read_run(student.folder)[0]
    try:
        data = open_data(student, config.data.name, "test")
    except InputError as error:
        raise InputError(f"the graph is checked on test samples of the run, which cannot be read: {error}") from error
    assert isinstance(data, Dataset)
    inputs = student.preparation.inputs(data, np.arange(CHECKED_SAMPLES) % len(data))
    return inputs if isinstance(inputs, dict) else {"inputs": inputs}


def _describe(student: Student, samples: Mapping[str, Tensor]) -> dict[str, Any]:
    recipe = student.recipe
    shapes = {}
    for name, sample in samples.items():
        tokens = ["tokens"] if recipe.padding == "longest" else list(sample.shape[1:])
        shapes[name] = {
            "shape": ["batch", *(tokens if recipe.kind == "text" else sample.shape[1:])],
            "dtype": str(sample.dtype).removeprefix("torch."),
        }
    preprocessing = recipe.preprocessing
    if recipe.kind == "text":
        known = tokenizer_source(recipe, student.folder)
        preprocessing["tokenizer"] = "tpkd.models.tokens.HashedWords" if known is None else TOKENIZER_NAME
    return {
        "inputs": shapes,
        "outputs": {"logits": {"shape": ["batch", len(recipe.class_names)], "dtype": "float32"}},
        "class_names": list(recipe.class_names),
        "preprocessing": preprocessing,
        "weights_fingerprint": recipe.weights_fingerprint,
    }


def _trace(student: Student, samples: Mapping[str, Tensor], description: Mapping[str, Any], path: Path) -> None:
    dynamic = tuple(
        {place: size for place, size in enumerate(described["shape"]) if isinstance(size, str)}
        for described in description["inputs"].values()
    )
    example = tuple(sample[:2] for sample in samples.values())  # one row could become a constant of the graph
    try:
        with _quiet():
            program: Any = torch.onnx.export(
                _Positional(student.module).eval(),
                example,
                dynamo=True,
                input_names=list(samples),
                output_names=["logits"],
                dynamic_shapes={"inputs": dynamic},
                verbose=False,
            )
    except Exception as error:  # the exporter fails in many ways on networks that it does not know
        raise InputError(f"{student.recipe.model}: torch cannot export it: {reason(error)}; use safetensors") from error
    for key in ("class_names", "preprocessing", "weights_fingerprint"):
        program.model.metadata_props[key] = json.dumps(description[key], ensure_ascii=False)
    program.save(path)


def _compare(student: Student, samples: Mapping[str, Tensor], path: Path) -> None:
    """Compare all samples at once and the first alone: a graph with a fixed batch fails one of them."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for rows in (CHECKED_SAMPLES, 1):
        part: dict[str, Tensor] = {name: sample[:rows] for name, sample in samples.items()}
        inputs: ModelInputs = part.get("inputs", part)
        (expected,) = student.logits(iter([inputs]))
        (found,) = session.run(None, {name: sample.numpy() for name, sample in part.items()})
        check_same_logits(torch.from_numpy(found), expected, tolerance=TOLERANCE, where="onnxruntime")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's advice about its own internals from the user."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(level)
