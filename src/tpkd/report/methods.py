"""What tables and charts show of the objectives: plain words, handed over by whoever knows the objectives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Title = Callable[[str], str]
"""From an objective's name to its name for people."""


@dataclass(frozen=True)
class Method:
    """An objective in a table."""

    name: str
    title: str
    control: bool = False
    """Whether the main table leaves it out."""
    ablation: tuple[str, str] | None = None
    """Condition and direction, for a row of the ablation."""
    paper_accuracy: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Domain -> mean and sample standard deviation in percent, as the paper has them."""


@dataclass(frozen=True)
class Catalogue:
    """Every known objective, in the order of the tables."""

    methods: tuple[Method, ...]

    def __getitem__(self, name: str) -> Method:
        """The method of a name; one that is not installed here is shown by its name."""
        return next((method for method in self.methods if method.name == name), Method(name, name))

    def title(self, name: str) -> str:
        """The name for people.

        Example:
            >>> Catalogue((Method("dp-u", "DP-U"),)).title("dp-u")
            'DP-U'
        """
        return self[name].title
