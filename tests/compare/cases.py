"""Cells and small records of comparisons, made by hand."""

from tpkd.compare.record import Cell, ComparisonRecord, MethodSettings, PaperProtocol
from tpkd.compare.statistics import CONFIDENCE_LEVEL, summarize_methods


def cell(objective, seed, accuracy, **fields):
    """A finished cell, or a missing one where there is no accuracy."""
    known = {"directory": f"{objective}-{seed}", "problem": None, "status": "missing"}
    if accuracy is not None:
        known |= {"status": "finished", "accuracy": accuracy}
        known |= {"label_loss": 0.5, "steps": 10, "samples": 640, "skipped_steps": 0, "seconds": 1.5}
    return Cell(objective=objective, seed=seed, **(known | fields))


def comparison(cells, *, name="by-hand", paper=None, **fields):
    """The record of these cells."""
    objectives = tuple(dict.fromkeys(each.objective for each in cells))
    seeds = tuple(sorted({each.seed for each in cells}))
    plain = {
        "name": name,
        "confidence_level": CONFIDENCE_LEVEL,
        "objectives": objectives,
        "seeds": seeds,
        "data": None,
        "start": None,
        "teacher": None,
        "paper": paper or PaperProtocol(None, ("data.name: expected cifar100 or clinc150, found toys",)),
        "protocol": {"epochs": 3, "optimizer.name": "sgd", "clip_norm": None},
        "settings": tuple(
            MethodSettings(objective, {}, {"name": "sgd", "weight_decay": 1e-3}, {}, "") for objective in objectives
        ),
        "cells": tuple(cells),
        "methods": summarize_methods(cells, objectives),
        "identical": (),
        "environments": (),
    }
    return ComparisonRecord(**(plain | fields))
