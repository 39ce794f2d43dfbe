"""Frozen records with a schema version, JSON in and out: what a study hands to a report, and what is kept on disk."""

from tpkd.records.base import Record
from tpkd.records.diagnosis import (
    ClassPair,
    ClassState,
    Competitor,
    ConfidenceBin,
    Decomposition,
    DiagnosisRecord,
    ExampleState,
    FrontierCurve,
    Histogram,
    StudentDiagnosis,
)
from tpkd.records.illustrations import Curve, FeasibilityIllustration, GeometryIllustration, IllustrationsRecord

__all__ = [
    "ClassPair",
    "ClassState",
    "Competitor",
    "ConfidenceBin",
    "Curve",
    "Decomposition",
    "DiagnosisRecord",
    "ExampleState",
    "FeasibilityIllustration",
    "FrontierCurve",
    "GeometryIllustration",
    "Histogram",
    "IllustrationsRecord",
    "Record",
    "StudentDiagnosis",
]
