"""A teacher: a network, or a cache of its outputs; one type for training, comparison and integrations."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from tpkd.data.class_map import ClassMap
from tpkd.errors import InputError
from tpkd.geometry.top_k import TopK
from tpkd.models.classifier import Classifier
from tpkd.models.weights import weights_fingerprint
from tpkd.teacher.cache.read import TeacherCache, open_cache
from tpkd.teacher.cache.recipe import CacheRecipe

Ids = Tensor | None


@dataclass(frozen=True)
class Answers:
    """A teacher's outputs for a batch, detached from any graph."""

    logits: Tensor | TopK
    """All classes, or what a truncated cache kept of them."""
    layer_features: tuple[Tensor, ...] = ()
    members: tuple[Tensor, ...] = ()
    """The logits of each of several teachers, whose average `logits` is; empty where there is one."""
    weights: tuple[float, ...] = ()
    """How much each of them counts; their sum is one."""

    def all_logits(self, asked_by: str) -> Tensor:
        """The logits where all classes are needed.

        Args:
            asked_by: who needs them, which an error names.

        Raises:
            InputError: the teacher is truncated.

        Example:
            >>> Answers(TopK(torch.zeros(2, 8), torch.arange(16).view(2, 8))).all_logits("tpkd study blocking")
            Traceback (most recent call last):
                ...
            tpkd.errors.InputError: tpkd study blocking: expected the teacher's logits of all classes, found the 8 \
largest of each row; build its cache without teacher.top_k, or leave teacher.cache out
        """
        if isinstance(self.logits, TopK):
            raise InputError(
                f"{asked_by}: expected the teacher's logits of all classes, found the {self.logits.k} largest of each "
                "row; build its cache without teacher.top_k, or leave teacher.cache out"
            )
        return self.logits


class Teacher(ABC):
    """A source of teacher logits that is never trained.

    It is not an `nn.Module`, which hides its network from everything that walks a module tree: DDP wrappers,
    optimisers, state dicts, and `train()` of the module that holds it.
    """

    layer_sizes: tuple[int, ...] = ()
    """Widths of the layer features; empty where a cache was built without them."""
    dtype = torch.float32
    """The precision of its outputs."""
    top_k: int | None = None
    """How many of the largest classes a truncated cache kept; None where the answers are all logits."""
    remark: str = ""
    """A line for the run's log about where the outputs come from."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Identifies the teacher in a checkpoint, which does not hold the network."""

    @property
    @abstractmethod
    def about(self) -> nn.Module | CacheRecipe:
        """The network or recipe that may know the number and names of the classes."""

    @abstractmethod
    def to(self, device: torch.device) -> Self:
        """Return outputs on this device."""

    @abstractmethod
    def answer(
        self, inputs: Any = None, sample_ids: Ids = None, view_ids: Ids = None, *, with_layers: bool = False
    ) -> Answers:
        """The teacher's outputs for some samples.

        Args:
            inputs: the arguments of the network; a cache ignores them.
            sample_ids: the rows to read from a cache; a network ignores them.
            view_ids: their views; optional for a cache with one view per sample.
            with_layers: whether to return layer features as well.
        """

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the same object: a copy of the student, such as an EMA, shares its teacher."""
        return self


class OnlineTeacher(Teacher):
    """A network that runs in evaluation mode; a class map turns its logits into those of the data's classes.

    Example:
        >>> teacher = OnlineTeacher(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)))
        >>> teacher(torch.zeros(2, 4)).requires_grad
        False
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        student: nn.Module | None = None,
        layers: tuple[int, ...] = (),
        class_map: ClassMap | None = None,
    ) -> None:
        """Freeze the network in place; one that shares a parameter with the student is refused."""
        own = {id(parameter) for parameter in model.parameters()}
        learning = () if student is None else student.named_parameters()
        shared = next((name for name, parameter in learning if id(parameter) in own), None)
        if shared is not None:
            raise InputError(
                f"teacher: expected a network of its own, got one that shares {shared} with the student, "
                "which freezing it would stop from learning: pass copy.deepcopy of it"
            )
        self.model = model.eval().requires_grad_(False)
        self.layers, self.class_map = layers, class_map
        if isinstance(model, Classifier):
            self.layer_sizes = tuple(model.layer_sizes[layer] for layer in layers)

    @cached_property
    def fingerprint(self) -> str:
        """Of the weights."""
        return weights_fingerprint(self.model)

    @property
    def about(self) -> nn.Module:
        """The network."""
        return self.model

    def to(self, device: torch.device) -> Self:
        """Move the network, unless it was dispatched to devices or quantised when it was loaded."""
        if getattr(self.model, "hf_device_map", None) is None and not getattr(self.model, "is_quantized", False):
            self.model.to(device)
        return self

    def answer(
        self, inputs: Any = None, sample_ids: Ids = None, view_ids: Ids = None, *, with_layers: bool = False
    ) -> Answers:
        """One forward pass without a graph, always in evaluation mode.

        A tpkd `Classifier` takes its inputs as one argument; for other networks a tuple or dict is unpacked.
        """
        if inputs is None:
            raise InputError("inputs: expected what to call the teacher with, got None")
        self.model.eval()
        with torch.no_grad():  # not inference mode: its tensors cannot be saved for backward, and the loss needs them
            if isinstance(self.model, Classifier):
                output = self.model.outputs(inputs, self.layers if with_layers else ())
                logits, features = output.logits, output.layer_features
            elif isinstance(inputs, Mapping):
                logits, features = logits_of(self.model(**inputs)), ()
            else:
                several = inputs if isinstance(inputs, tuple | list) else (inputs,)
                logits, features = logits_of(self.model(*several)), ()
        return Answers(logits if self.class_map is None else self.class_map.apply(logits), features)

    def __call__(self, inputs: Any) -> Tensor:
        """The logits alone."""
        return self.answer(inputs).all_logits("teacher")


class CachedTeacher(Teacher):
    """Outputs by sample id, from a cache that `tpkd.teacher.cache.build_cache` or `tpkd cache build` wrote.

    Example:
        >>> CachedTeacher("/no/such/cache")
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: /no/such/cache: expected a teacher cache, found no manifest.json
    """

    def __init__(self, cache: TeacherCache | str | Path, *, layers: tuple[int, ...] = ()) -> None:
        """Use an open cache, or open and verify one; layer features are read if the cache holds all of them."""
        if not isinstance(cache, TeacherCache | str | Path):
            found = type(cache).__name__  # type: ignore[unreachable]  # users do not run mypy
            raise InputError(f"teacher: expected a network, a teacher cache or the directory of one, got {found}")
        self.cache = cache if isinstance(cache, TeacherCache) else open_cache(cache)
        tensors, names = self.about.tensors, [layer_tensor(layer) for layer in layers]
        self._names = names if tensors.keys() >= set(names) else []
        self._device = torch.device("cpu")
        self.layer_sizes = tuple(tensors[name] for name in self._names)
        self.dtype = getattr(torch, self.about.dtype)
        self.top_k = self.about.top_k

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that determines the logits."""
        return self.cache.answers_sha256

    @property
    def about(self) -> CacheRecipe:
        """The recipe that the cache was computed from."""
        return self.cache.recipe

    def to(self, device: torch.device) -> Self:
        """Move rows to this device after reading them."""
        self._device = device
        return self

    def answer(
        self, inputs: Any = None, sample_ids: Ids = None, view_ids: Ids = None, *, with_layers: bool = False
    ) -> Answers:
        """Rows of the cache: logits, or a `TopK` where the cache is truncated."""
        if sample_ids is None:
            raise InputError("sample_ids: expected which rows of the teacher cache to read, got None")
        keys = (sample_ids.cpu(), None if view_ids is None else view_ids.cpu())
        names = self._names if with_layers else ()
        features = tuple(self.cache.read_tensor(name, *keys).to(self._device) for name in names)
        answers = self.cache.read(*keys)
        if isinstance(answers, TopK):
            return Answers(answers.map(lambda values: values.to(self._device)), features)
        return Answers(answers.to(self._device), features)


def layer_tensor(layer: int) -> str:
    """The name of a layer's pooled features in a cache."""
    return f"layer_{layer}"


def logits_of(output: Any) -> Tensor:
    """The logits of what a network returns: a tensor, something with `logits`, or a tuple that starts with them.

    Example:
        >>> logits_of({"logits": torch.zeros(2, 3)}).shape, logits_of((torch.zeros(2, 3), None)).shape
        (torch.Size([2, 3]), torch.Size([2, 3]))
    """
    if isinstance(output, Mapping):
        found = output.get("logits")
    else:
        found = output[0] if isinstance(output, tuple | list) and output else getattr(output, "logits", output)
    if isinstance(found, Tensor) and found.is_floating_point():
        return found
    keys = f" with {', '.join(map(str, output))}" if isinstance(output, Mapping) else ""
    raise InputError(f"model: expected it to return logits, got {type(output).__name__}{keys}")
