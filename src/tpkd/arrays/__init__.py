"""Arrays and texts on disk, of any common format, read in blocks of rows; never a pickle that runs."""

from tpkd.arrays.array_file import ArrayFile, TextFile
from tpkd.arrays.numpy_files import read_npz
from tpkd.arrays.opening import ARRAY_SUFFIXES, array_names, open_array, open_texts

__all__ = ["ARRAY_SUFFIXES", "ArrayFile", "TextFile", "array_names", "open_array", "open_texts", "read_npz"]
