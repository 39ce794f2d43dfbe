"""What a student is built from besides its weights: architecture, preprocessing and class names, as one record."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tpkd.config.schema import RunConfig
from tpkd.data.views import ViewRecipe
from tpkd.errors import InputError
from tpkd.files import read_text, reading
from tpkd.record import Record

RECIPE_NAME = "config.json"
"""The recipe in a folder that `tpkd export --format safetensors` wrote."""
FORMAT = "tpkd student"
"""Tells our `config.json` from that of another library."""

Kind: TypeAlias = Literal["text", "image", "image or vector"]


@dataclass(frozen=True)
class StudentRecipe(Record):
    """Everything that a student is built from, its weights excepted; the teacher has no part in it."""

    format: str
    model: str
    """`builtin:mlp`, `builtin:resnet20`, `builtin:efficientnet-lite0`, `builtin:bert`, `timm:NAME`, `hf:PATH_OR_ID`."""
    options: dict[str, Any]
    new_head: bool
    """Whether the run put a new head on the network, which removes auxiliary heads of some timm networks."""
    class_names: tuple[str, ...]
    views: ViewRecipe
    """How images become inputs; only the evaluation view is used."""
    max_length: int
    """Of texts, in tokens."""
    padding: str
    weights_fingerprint: str
    """Of the weights that belong to it, see `tpkd.models.weights.weights_fingerprint`."""

    @property
    def kind(self) -> Kind:
        """What the student takes; an MLP takes vectors, and images that it flattens."""
        if self.model.startswith("hf:") or self.model == "builtin:bert":
            return "text"
        return "image or vector" if self.model == "builtin:mlp" else "image"

    @property
    def preprocessing(self) -> dict[str, Any]:
        """How raw inputs become those of the network, as plain data for other programs."""
        if self.kind == "text":
            return {"kind": self.kind, "max_length": self.max_length, "padding": self.padding}
        recipe = self.views.to_dict()
        used = ("size", "mean", "std", "scale", "interpolation")
        return {"kind": self.kind, "crop": "central square", **{name: recipe[name] for name in used}}


def recipe_of_run(config: RunConfig, class_names: tuple[str, ...], fingerprint: str) -> StudentRecipe:
    """The recipe of a run's student."""
    student, views = config.student, config.views.model_dump(exclude={"mixup", "cutmix"})
    return StudentRecipe(
        format=FORMAT,
        model=student.model,
        options=dict(student.options),
        new_head=student.head != "own",
        class_names=class_names,
        views=ViewRecipe(**views),
        max_length=config.text.max_length,
        padding=config.text.padding,
        weights_fingerprint=fingerprint,
    )


def read_recipe(folder: Path) -> StudentRecipe | None:
    """The recipe in a folder; None where there is none of ours.

    Raises:
        InputError: the file is damaged, or its classes are not two or more different names.
    """
    path = folder / RECIPE_NAME
    if not path.is_file():
        return None
    with reading(path):
        content = json.loads(read_text(path))
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            return None
        recipe = StudentRecipe.from_dict(content)
    names = recipe.class_names
    if len(names) < 2 or len(set(names)) < len(names):
        raise InputError(f"{path}: class_names: expected at least two different names, found {len(names)}")
    return recipe
