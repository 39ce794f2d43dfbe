"""Which columns of a table hold the input, the label and the id of a sample."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from tpkd.arrays.columns import LABEL_NAMES
from tpkd.errors import InputError, did_you_mean, shortened, some

TEXT_NAMES = ("text", "sentence", "utterance", "content")
IMAGE_NAMES = ("image", "img")
ROLES = ("text", "image", "label", "id")
MAX_COLUMNS = 100_000
"""Of a table; more are a sign that it is not one."""


class Chosen(NamedTuple):
    """The columns of one table."""

    kind: Literal["text", "image"]
    input: str
    label: str | None
    """None where labels are not read."""
    id: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, the input first."""
        return tuple(name for name in (self.input, self.label, self.id) if name is not None)


@dataclass(frozen=True)
class Columns:
    """Column names as the user gives them; what is not given is recognised by its usual names.

    An id is used only if it is named, because a column `id` may number the rows of each file from 0.

    Example:
        >>> Columns().choose("a.csv", ["id", "sentence", "intent"])
        Chosen(kind='text', input='sentence', label='intent', id=None)
        >>> Columns(label="topic").choose("a.csv", ["text", "topics"])
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: a.csv: expected the column 'topic' of data.columns.label, found 'text, topics'; did \
you mean topics?
    """

    text: str | None = None
    image: str | None = None
    label: str | None = None
    id: str | None = None
    labelled: bool = True
    """Whether labels are read; if not, a column of labels is not needed, and ignored where there is one."""

    @classmethod
    def from_names(cls, names: Mapping[str, str] | None) -> "Columns":
        """From a role such as `text` to the name of its column.

        Example:
            >>> Columns.from_names({"label": "topic"}).label
            'topic'
        """
        names = names or {}
        for role in names:
            if role not in ROLES:
                raise InputError(f"columns: expected {', '.join(ROLES)}, found {role!r}{did_you_mean(role, ROLES)}")
        columns = cls(names.get("text"), names.get("image"), names.get("label"), names.get("id"))
        if columns.text is not None and columns.image is not None:
            raise InputError("columns: expected a text or an image, found both")
        return columns

    @property
    def given(self) -> dict[str, str]:
        """The columns that the user named, by their role."""
        return {role: name for role in ROLES if (name := getattr(self, role)) is not None}

    def without_label(self) -> "Columns":
        """The same columns, but for that of the labels, which are not read.

        Example:
            >>> Columns(label="topic").without_label().choose("a.csv", ["text"]).names
            ('text',)
        """
        return replace(self, label=None, labelled=False)

    def refuse(self, where: object) -> None:
        """Refuse named columns, for data without column names."""
        if self.given:
            raise InputError(f"{where}: has no named columns; leave out data.columns")

    def choose(self, where: str, found: Sequence[str], *, images: bool = False) -> Chosen:
        """The columns of a table that has the columns `found`; `images` says that they may hold images.

        Raises:
            InputError: a column is missing, is there twice, or could be one of several.
        """
        if len(found) > MAX_COLUMNS:
            raise InputError(f"{where}: expected at most {MAX_COLUMNS} columns, found {len(found)}")
        for role, name in self.given.items():
            if name not in found:
                problem = f"expected the column {name!r} of data.columns.{role}"
                raise InputError(f"{where}: {problem}, found {_shown(found)}{did_you_mean(name, found)}")
        if self.image is not None and not images:
            raise InputError(f"{where}: data.columns.image: expected none in a table of texts, found {self.image!r}")
        text = self.text or (None if self.image else _usual(where, "text", TEXT_NAMES, found))
        image = self.image or (_usual(where, "image", IMAGE_NAMES, found) if images and not self.text else None)
        label = self.label or (_usual(where, "label", LABEL_NAMES, found) if self.labelled else None)
        if text is not None and image is not None:
            both = f"expected a text or an image per row, found {text!r} and {image!r}"
            raise InputError(f"{where}: {both}; choose one with data.columns, such as {{text: {text}}}")
        if (text is None and image is None) or (label is None and self.labelled):
            raise InputError(_missing(where, found, images, self))
        chosen = Chosen("text" if image is None else "image", str(text or image), label, self.id)
        for name in chosen.names:
            if list(found).count(name) > 1:
                raise InputError(f"{where}: duplicate column {name!r}")
        return chosen


def _usual(where: str, role: str, names: Sequence[str], found: Collection[str]) -> str | None:
    """The one column with a usual name; the first of the names wins, because it is the one we document."""
    present = [name for name in names if name in found]
    if len(present) > 1 and present[0] != names[0]:
        problem = f"expected one column for the {role}, found {' and '.join(map(repr, present[:2]))}"
        raise InputError(f"{where}: {problem}; choose one with data.columns, such as {{{role}: {present[0]}}}")
    return present[0] if present else None


def _missing(where: str, found: Sequence[str], images: bool, columns: Columns) -> str:
    wanted = columns.text or columns.image or ("text or image" if images else "text")
    others = [name for name in found if name not in columns.given.values()]
    if not columns.labelled:
        example = f"{{text: {others[0]}}}" if others else "{text: …}"
        problem = f"expected the column {wanted}, found {_shown(found)}"
        return f"{where}: {problem}; name yours with data.columns, such as {shortened(example)}"
    example = f"{{text: {others[0]}, label: {others[-1]}}}" if len(others) > 1 else "{text: …, label: …}"
    problem = f"expected the columns {wanted} and {columns.label or 'label'}, found {_shown(found)}"
    way_out = f"name yours with data.columns, such as {shortened(example)}"
    return f"{where}: {problem}; {way_out}; or read no labels: data.unlabelled: true, --unlabelled"


def _shown(found: Sequence[str]) -> str:
    return repr(shortened(some(list(found), 20)))
