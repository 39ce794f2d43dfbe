"""Files of logits in every format, and a small run that takes an imported teacher."""

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet
from safetensors.numpy import save_file

from tpkd.config.loading import resolve_config
from tpkd.data.configured import load_data
from tpkd.teacher.cache.truncation import truncate
from training.tiny import plain_config

FORMATS = ("npy", "npz", "safetensors", "pt", "csv", "tsv", "parquet")
SUITED = ("npy", "npz", "safetensors", "pt")
"""Formats that hold more than two axes."""


def write(path, logits, **others):
    """Logits, and other arrays where the format holds several, in the format of the suffix."""
    kind = path.suffix[1:]
    if kind == "npy":
        np.save(path, logits)
    elif kind == "npz":
        np.savez(path, logits=logits, **others)
    elif kind == "safetensors":
        save_file({"logits": np.ascontiguousarray(logits), **others}, path)
    elif kind == "pt":
        tensors = {name: torch.from_numpy(values) for name, values in {"logits": logits, **others}.items()}
        torch.save(tensors if others else tensors["logits"], path)
    else:
        columns = {f"logit_{place}": logits[:, place] for place in range(logits.shape[1])} | others
        if kind == "parquet":
            parquet.write_table(pa.table(columns), path)
        else:
            lines = [list(columns), *zip(*columns.values(), strict=True)]
            path.write_text("\n".join(("\t" if kind == "tsv" else ",").join(map(str, line)) for line in lines) + "\n")
    return path


def importing_config(directory, overrides=(), **changes):
    """A run on some digits whose teacher is a cache alone."""
    student = plain_config(directory)["student"] | {"layers": []}
    plain = plain_config(directory, student=student, teacher={"cache": str(directory / "imported")})
    return resolve_config(plain | {"limit": 60, "epochs": 1, "views": {"scale": 16}, **changes}, overrides)


def answers(config, views=1, dtype=np.float32):
    """The training samples, and logits of a teacher that is mostly right: (N, views, 10)."""
    dataset = load_data(config, "train")
    logits = np.random.default_rng(3).normal(size=(len(dataset), views, 10)).astype(dtype)
    logits[np.arange(len(dataset)), :, dataset.labels] += 3
    return dataset, logits


def top_k_arrays(logits, labels, k=3):
    """The arrays of a truncated teacher."""
    kept = truncate(torch.from_numpy(logits), torch.from_numpy(labels), k)
    return {name: getattr(kept, name).numpy() for name in ("log_probs", "indices", "label_log_probs", "rest_log_probs")}
