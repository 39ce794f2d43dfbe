"""Data sets by name, their fixed views, the deterministic order and class maps."""

from tpkd.data.batches import (
    ModelInputs,
    PlainBatches,
    Preparation,
    SampleBatch,
    Tokenize,
    TrainingBatches,
    load_batches,
)
from tpkd.data.class_map import ClassMap
from tpkd.data.dataset import Dataset, ImageFiles, Kind, RawInputs
from tpkd.data.loading import DATA_VARIABLE, DATASET_NAMES, SPLITS, check_dataset, load_dataset
from tpkd.data.order import SampleOrder, choose_views
from tpkd.data.pickled_arrays import read_pickled_arrays
from tpkd.data.views import DIGITS_VIEWS, IDENTITY_VIEW, INTERPOLATIONS, ViewRecipe

__all__ = [
    "DATASET_NAMES",
    "DATA_VARIABLE",
    "DIGITS_VIEWS",
    "IDENTITY_VIEW",
    "INTERPOLATIONS",
    "SPLITS",
    "ClassMap",
    "Dataset",
    "ImageFiles",
    "Kind",
    "ModelInputs",
    "PlainBatches",
    "Preparation",
    "RawInputs",
    "SampleBatch",
    "SampleOrder",
    "Tokenize",
    "TrainingBatches",
    "ViewRecipe",
    "check_dataset",
    "choose_views",
    "load_batches",
    "load_dataset",
    "read_pickled_arrays",
]
