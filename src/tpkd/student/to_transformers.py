"""The format `hf` for text students: a folder that `AutoModelForSequenceClassification` loads."""

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tpkd.errors import InputError, extra
from tpkd.models.encoder import TextClassifier, loading
from tpkd.student.checks import check_same_logits
from tpkd.student.loading import Student
from tpkd.student.network import save_tokenizer, tokenizer_source

TOLERANCE = 1e-5


def write_transformers(student: Student, folder: Path) -> list[str]:
    """Write configuration with class names, weights and tokenizer; loaded again and compared before it is published.

    Returns:
        Notes for the model card.

    Raises:
        InputError: a head that no class of transformers has.
        MismatchError: the library computes other logits.
    """
    with extra("text"):
        from transformers import AutoModelForSequenceClassification
    network = student.module
    assert isinstance(network, TextClassifier)
    model = _sequence_classifier(student, network)
    with loading(str(folder)):
        model.save_pretrained(folder)
        loaded: Any = AutoModelForSequenceClassification.from_pretrained(folder, local_files_only=True)
    inputs = _token_inputs(network)
    (expected,) = student.logits(iter([inputs]))
    with torch.no_grad():
        found = loaded.eval()(**inputs).logits
    check_same_logits(found, expected, tolerance=TOLERANCE, where="transformers")
    source = tokenizer_source(student.recipe, student.folder)
    if source is None:
        return [
            "Load it with `transformers.AutoModelForSequenceClassification`. It has no tokenizer of that library: "
            "texts become ids by `tpkd.models.tokens.HashedWords`."
        ]
    save_tokenizer(source, folder, max_length=student.recipe.max_length)
    return ["Load it with `transformers.AutoModelForSequenceClassification` and `AutoTokenizer`."]


def _sequence_classifier(student: Student, network: TextClassifier) -> Any:
    """The library's own classifier with the weights of ours."""
    from transformers import AutoModelForSequenceClassification

    refusal = f"{student.recipe.model}: transformers has no classifier with this head; use onnx or safetensors"
    if network.pooling != "pooler":
        raise InputError(f"{refusal} (it takes the {network.pooling} over tokens, theirs one pooled token)")
    config: Any = copy.deepcopy(network.network.config)
    config.id2label = dict(enumerate(student.class_names))
    config.label2id = {name: place for place, name in enumerate(student.class_names)}
    config.num_labels = len(student.class_names)
    config.problem_type = "single_label_classification"
    try:
        with torch.random.fork_rng(devices=()):
            model: Any = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)
    except ValueError as error:  # a kind of network without such a class
        raise InputError(refusal) from error
    ours, theirs = network.network.state_dict(), model.base_model.state_dict()
    if not isinstance(getattr(model, "classifier", None), nn.Linear) or ours.keys() != theirs.keys():
        raise InputError(f"{refusal} (ours is one linear layer on the pooler)")
    model.base_model.load_state_dict(ours)
    model.classifier.load_state_dict(network.classifier.state_dict())
    return model.eval()


def _token_inputs(network: TextClassifier, rows: int = 8) -> dict[str, Tensor]:
    """Random ids of several lengths: whether two networks are the same does not depend on texts."""
    config: Any = network.network.config
    length = min(16, network.max_positions or 16) - 4  # RoBERTa and its kin reserve positions for padding
    generator = torch.Generator().manual_seed(0)
    lengths = 1 + torch.arange(rows) % max(length, 1)
    ids = torch.randint(config.vocab_size, (rows, max(length, 1)), generator=generator)
    return {"input_ids": ids, "attention_mask": (torch.arange(ids.shape[1]) < lengths.unsqueeze(-1)).long()}
