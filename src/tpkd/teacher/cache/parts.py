"""A part of a cache: whole shards that follow each other, built in a directory of its own."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tpkd.errors import InputError

_NUMBERS = re.compile(r"([1-9]\d{0,8})/([1-9]\d{0,8})")
_PLACE = re.compile(r"(.+)\.part-\d+-of-\d+")


@dataclass(frozen=True)
class Part:
    """One of several parts, counted from 1.

    Example:
        >>> part = Part.parse("2/4")
        >>> str(part), part.shards(10), part.place(Path("runs/cache"))
        ('part 2 of 4', range(2, 5), PosixPath('runs/cache.part-2-of-4'))
    """

    number: int
    total: int

    def __post_init__(self) -> None:
        """Refuse a part that there is not."""
        if not 1 <= self.number <= self.total:
            raise ValueError(f"part: expected a number from 1 to {self.total}, got {self.number}")

    @classmethod
    def parse(cls, text: str) -> "Part":
        """The part that `2/4` names.

        Raises:
            InputError: the text names none.
        """
        match = _NUMBERS.fullmatch(text)
        if match is None or int(match[1]) > int(match[2]):
            raise InputError(f"part: expected I/N with I from 1 to N, such as 2/4, found {text!r}")
        return cls(int(match[1]), int(match[2]))

    def shards(self, count: int) -> range:
        """Which of `count` shards belong to the part; parts differ by at most one."""
        return range(count * (self.number - 1) // self.total, count * self.number // self.total)

    def place(self, cache: Path) -> Path:
        """The directory of the part of a cache, beside that of the cache."""
        return cache.with_name(f"{cache.name}.part-{self.number}-of-{self.total}")

    def __str__(self) -> str:
        """For people."""
        return f"part {self.number} of {self.total}"


def place_of_whole(parts: Iterable[Path]) -> Path | None:
    """The directory of the cache that directories are parts of by their names, None where the names do not say.

    Example:
        >>> place_of_whole([Path("runs/c.part-1-of-2"), Path("runs/c.part-2-of-2")])
        PosixPath('runs/c')
        >>> place_of_whole([Path("runs/c.part-1-of-2"), Path("elsewhere")]) is None
        True
    """
    places = {path.with_name(match[1]) if (match := _PLACE.fullmatch(path.name)) else None for path in parts}
    return places.pop() if len(places) == 1 else None
