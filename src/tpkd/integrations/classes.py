"""The number and names of the classes of a network or a data set, as far as they are known.

- `num_classes_of`, `class_names_of`, `data_class_names`: what is known; None if unknown.
- `check_enough_classes`: refuse a task with too few classes for its objective.
- `check_classes`: refuse another number of classes, other names, or the same in another order.
"""

from itertools import combinations
from typing import Any

from torch import nn
from torch.utils.data import Subset

from tpkd.class_names import check_class_names, known_names, names_from_id2label
from tpkd.errors import InputError
from tpkd.objectives.base import Objective

_LABEL_COLUMNS = ("labels", "label")


def num_classes_of(model: Any) -> int | None:
    """How many classes a network has, where it says so: in its `config`, as `num_classes`, or by a last linear layer.

    Example:
        >>> num_classes_of(nn.Sequential(nn.ReLU(), nn.Linear(4, 3))), num_classes_of(nn.ReLU())
        (3, None)
    """
    for holder, name in ((getattr(model, "config", None), "num_labels"), (model, "num_classes")):
        found = getattr(holder, name, None)
        if isinstance(found, int) and found > 0:
            return found
    if isinstance(model, nn.Linear):
        return model.out_features
    # The last layer of a sequence is its output; of any other module we cannot know which one that is.
    return num_classes_of(model[-1]) if isinstance(model, nn.Sequential) and len(model) else None


def class_names_of(model: Any) -> tuple[str, ...] | None:
    """The names of a network's classes: its `class_names`, transformers' `id2label`, or timm's `label_names`.

    timm keeps the names of the classes that the weights were trained on; with another number of outputs they no
    longer describe this network and count as none.

    Example:
        >>> model = nn.Linear(4, 2)
        >>> model.class_names = ["cat", "dog"]
        >>> class_names_of(model)
        ('cat', 'dog')
    """
    own = _names(getattr(model, "class_names", None))
    if own is not None:
        return own
    id2label = getattr(getattr(model, "config", None), "id2label", None)
    if isinstance(id2label, dict):
        return names_from_id2label(id2label)
    trained = getattr(model, "pretrained_cfg", None)
    names = _names(trained.get("label_names")) if isinstance(trained, dict) else None
    return names if names is not None and len(names) == num_classes_of(model) else None


def data_class_names(dataset: Any) -> tuple[str, ...] | None:
    """The names of a data set's classes: the `ClassLabel` of its label column, its `class_names` or its `classes`.

    Example:
        >>> class Folder:
        ...     classes = ["cat", "dog"]
        >>> data_class_names(Folder()), data_class_names([1, 2, 3])
        (('cat', 'dog'), None)
    """
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    features = getattr(dataset, "features", None)
    columns = features if isinstance(features, dict) else {}
    for column in _LABEL_COLUMNS:
        feature = columns.get(column)
        names = _names(getattr(getattr(feature, "feature", feature), "names", None))  # tokens have a list of labels
        if names is not None:
            return names
    found = (_names(getattr(dataset, name, None)) for name in ("class_names", "classes"))
    return next((names for names in found if names is not None), None)


def check_enough_classes(objective: Objective, num_classes: int | None) -> None:
    """Refuse a task with fewer classes than the objective is defined for, where their number is known.

    Example:
        >>> from tpkd.objectives.registry import create
        >>> check_enough_classes(create("kd"), 2)
        >>> check_enough_classes(create("tpkd"), 2)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: objective 'tpkd' needs at least 3 classes, found 2: ...: use objective="kd" or "ce"
    """
    if num_classes is None or num_classes >= objective.min_classes:
        return
    if num_classes == 1:
        reason = "a single output is a regression or a score: give the network one output per class"
    else:
        reason = (
            "beside the correct class there is a single other one, and a teacher knows nothing about it but its own "
            'confidence: use objective="kd" or "ce"'
        )
    problem = f"objective {objective.name!r} needs at least {objective.min_classes} classes, found {num_classes}"
    raise InputError(f"{problem}: {reason}")


def check_classes(
    objective: Objective,
    student: tuple[str, Any],
    teacher: tuple[str, Any],
    data: tuple[str, Any] = ("data", None),
    *,
    way_out: str,
) -> None:
    """Refuse a student, teacher and data set with different classes, as far as they are known, and too few classes.

    Args:
        objective: what is trained.
        student: what messages call it, and what may know its classes.
        teacher: likewise.
        data: likewise, a data set.
        way_out: what to do about class names that differ.

    Example:
        >>> from tpkd.objectives.registry import create
        >>> check_classes(create("tpkd"), ("model", nn.Linear(4, 10)), ("teacher", nn.Linear(4, 1000)), way_out="")
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: teacher: expected the 10 classes of the student, got 1000
    """
    own, theirs = num_classes_of(student[1]), num_classes_of(teacher[1])
    if own is not None and theirs is not None and own != theirs:
        raise InputError(f"{teacher[0].split('.')[0]}: expected the {own} classes of the student, got {theirs}")
    check_enough_classes(objective, theirs if own is None else own)
    named = [(name, class_names_of(party)) for name, party in (student, teacher)]
    named.append((data[0], data_class_names(data[1])))
    for (expected_in, expected), (found_in, found) in combinations(named, 2):
        check_class_names(found, expected, found_in=found_in, expected_in=expected_in, way_out=way_out)


def _names(found: Any) -> tuple[str, ...] | None:
    """Class names from the value of such an attribute; None if it is not a list of strings."""
    if isinstance(found, list | tuple) and all(isinstance(name, str) for name in found):
        return known_names(found)
    return None
