"""Files of teachers that kept their top classes, made from whole ones."""

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet
from safetensors.torch import save_file

from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.run import diagnose_files

ALL = ("log_probs", "indices", "label_log_probs", "rest_log_probs")


def cut_arrays(zt, y, k, *, dtype=np.float64, without_label=()):
    """The four arrays, from definitions in NumPy; the label's own is not known in the rows `without_label`."""
    log_t = torch.from_numpy(zt).double().log_softmax(-1).numpy()
    order = np.argsort(-log_t, axis=1, kind="stable")[:, :k]
    rows = np.arange(len(y))
    others = np.ones_like(log_t, dtype=bool)
    others[rows[:, None], order] = False
    label = log_t[rows, y].copy()
    for row in without_label:
        label[row] = np.nan
    knows = ~np.isnan(label)
    others[rows[knows], y[knows]] = False
    with np.errstate(divide="ignore"):
        rest = np.log((np.exp(log_t) * others).sum(1))
    kept = np.take_along_axis(log_t, order, 1)
    return {
        "log_probs": kept.astype(dtype),
        "indices": order.astype(np.int64),
        "label_log_probs": label.astype(dtype),
        "rest_log_probs": rest.astype(np.promote_types(dtype, np.float32)),
    }


def write_arrays(path, arrays):
    if path.suffix == ".safetensors":
        save_file({name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}, path)
    elif path.suffix == ".pt":
        torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, path)
    elif path.suffix == ".parquet":
        parquet.write_table(pa.table({name: array.tolist() for name, array in arrays.items()}), path)
    else:
        np.savez(path, **arrays)
    return path


def write_cut(files, k, *, name="top.npz", keys=ALL, **settings):
    """A truncated teacher beside the files of `write_files`."""
    arrays = cut_arrays(files.zt, files.y, k, **settings)
    return write_arrays(files.teacher.parent / name, {key: arrays[key] for key in keys})


def diagnose_cut(files, k, **settings):
    """The only student of `write_files` against a truncated teacher."""
    return diagnose_files(open_inputs([files.student], write_cut(files, k, **settings), files.labels)).students[0]
