"""How much the samples of each class count in a run."""

import torch
from jaxtyping import Float
from torch import Tensor

from tpkd.config.loading import ConfigError
from tpkd.config.schema import RunConfig
from tpkd.data.dataset import Dataset
from tpkd.errors import did_you_mean, shortened
from tpkd.objectives import Objective

_KEY = "data.class_weights"


def class_weights_of(config: RunConfig, dataset: Dataset) -> Float[Tensor, "K"] | None:
    """The configured weight of each class of the training samples; None where all count once.

    `balanced` gives class c the weight n / (m n_c), with n_c of all n samples and m classes that have any, so that
    every class has the same total and the weights of all samples sum to n.

    Raises:
        ConfigError: a class that the data do not have, or no class with samples that counts.
    """
    chosen = config.data.class_weights
    if chosen is None:
        return None
    counts = torch.bincount(torch.as_tensor(dataset.labels), minlength=dataset.num_classes)
    if chosen == "balanced":
        weights = len(dataset) / (int((counts > 0).sum()) * counts.double())
        return torch.where(counts > 0, weights, 1.0).to(torch.get_default_dtype())
    for name in chosen:
        if name not in dataset.class_names:
            problem = f"expected classes of {dataset.name}, found {shortened(name, 60)!r}"
            raise ConfigError(f"{_KEY}: {problem}{did_you_mean(name, dataset.class_names)}")
    found = torch.tensor([float(chosen.get(name, 1.0)) for name in dataset.class_names])
    if not (found[counts > 0] > 0).any():
        raise ConfigError(f"{_KEY}: expected a class with training samples of a weight above 0, found none")
    return found


def check_weighted(config: RunConfig, objective: Objective) -> None:
    """Refuse class weights where the objective does not take weights.

    Raises:
        ConfigError: says so, and what to do.
    """
    if config.data.class_weights is None or objective.takes_weights:
        return
    reason = "does not take weights" if objective.separable else "is not a sum over samples, which alone can weigh them"
    problem = f"objective {objective.name!r} with these settings {reason}"
    raise ConfigError(
        f"{_KEY}: expected none: {problem}; leave it out, or choose another objective, such as tpkd or kd"
    )
