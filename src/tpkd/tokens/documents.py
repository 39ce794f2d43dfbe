"""From text files to documents."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from tpkd.errors import InputError
from tpkd.files import read_text

MAX_FILE_BYTES = 4 << 30
"""Of one file of text; it is held in memory."""


def read_documents(path: Path, begin: str | None = None) -> tuple[str, ...]:
    """The documents of a file, or of all `.txt` files of a folder and those below it, in the order of their paths.

    Args:
        path: a file or a folder.
        begin: a line that this regular expression matches as a whole begins a document; without it, a file is one.

    Returns:
        Their texts as they are; those that are blank are left out.

    Raises:
        InputError: there is no text.
    """
    files = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path}: expected files whose names end in .txt, found none")
    texts = (text for file in files for text in split_documents(read_text(file, MAX_FILE_BYTES), begin))
    found = tuple(text for text in texts if text.strip())
    if not found:
        raise InputError(f"{path}: expected text, found none")
    return found


def split_documents(text: str, begin: str | None) -> tuple[str, ...]:
    """A text cut before every line that begins a document; joined again they are the text.

    Example:
        >>> split_documents("= One =\\nfirst\\n= Two =\\nsecond\\n", "= .* =")
        ('= One =\\nfirst\\n', '= Two =\\nsecond\\n')
    """
    if begin is None:
        return (text,)
    pattern, found = re.compile(begin), [""]
    for line in text.splitlines(keepends=True):
        if pattern.fullmatch(line.rstrip("\r\n")) and found[-1]:
            found.append(line)
        else:
            found[-1] += line
    return tuple(found)


def documents_sha256(documents: Sequence[str]) -> str:
    """The SHA-256 of all documents in order, and of where one ends.

    Example:
        >>> documents_sha256(["ab", "c"]) == documents_sha256(["a", "bc"])
        False
    """
    digest = hashlib.sha256()
    for text in documents:
        data = text.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()
