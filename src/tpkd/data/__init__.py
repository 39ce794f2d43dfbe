"""Data sets by name, their fixed views, the deterministic order and class maps."""

from tpkd.data.loading import load_dataset

__all__ = ["load_dataset"]
