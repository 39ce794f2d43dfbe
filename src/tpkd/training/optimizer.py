"""The optimisers over a network: the paper's SGD with momentum and Google's Adam, and torch's AdamW."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tpkd.config.optimizers import AdamWeightDecayConfig, OptimizerConfig, SGDConfig
from tpkd.errors import InputError
from tpkd.models.classifier import Classifier

_LATE_STEP = 1e9
RATE_SCALE = "lr_scale"
"""What the rate of a group is multiplied by, under the name that timm gives it; 1 in a group without it."""


class AdamWeightDecay(torch.optim.Optimizer):
    """The optimiser of the BERT release.

    Paper: appendix E.1, text. With gradient g: m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2 and
    w <- w - rate (m / (sqrt(v) + eps) + decay w). Unlike AdamW there is no bias correction, so the first steps are
    (1 - b1) / sqrt(1 - b2) = 3.2 times as long.

    Example:
        >>> weight = nn.Parameter(torch.tensor([1.0]))
        >>> optimizer = AdamWeightDecay([weight], lr=0.1, weight_decay=0.0)
        >>> weight.grad = torch.tensor([4.0])
        >>> optimizer.step()
        >>> weight.data
        tensor([0.6838])
    """

    def __init__(
        self,
        parameters: Iterable[Any],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        """Optimise parameters or groups of them, which may have their own rate and decay."""
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        if closure is not None:
            raise ValueError("closure: expected None, because the gradient is taken before the step")
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if not weights:
                continue
            gradients = [weight.grad for weight in weights]
            # One pass over memory. So late a step of AdamW has no bias correction left: 1 - b^step is exactly 1.
            torch._fused_adamw_(
                weights,
                gradients,
                [self._moment(weight, "first_moment") for weight in weights],
                [self._moment(weight, "second_moment") for weight in weights],
                [],
                [weight.new_tensor(_LATE_STEP, dtype=torch.float32) for weight in weights],
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )

    def _moment(self, weight: Tensor, name: str) -> Tensor:
        state = self.state[weight]
        if name not in state:
            state[name] = torch.zeros_like(weight, memory_format=torch.preserve_format)
        moment: Tensor = state[name]
        return moment


def build_optimizer(
    config: OptimizerConfig, module: nn.Module, scales: Mapping[nn.Parameter, float] | None = None
) -> torch.optim.Optimizer:
    """The configured optimiser over all parameters of a module that learn.

    Args:
        config: a section of the configuration.
        module: what learns.
        scales: what the rate of a parameter is multiplied by, 1 where it is not named; None for one rate for all.

    Example:
        >>> optimizer = build_optimizer(AdamWeightDecayConfig(learning_rate=3e-4), nn.Linear(2, 3))
        >>> [(group["weight_decay"], len(group["params"])) for group in optimizer.param_groups]
        [(0.01, 1), (0.0, 1)]
    """
    rate = config.learning_rate
    if isinstance(config, SGDConfig):
        groups = [{"params": [parameter for parameter in module.parameters() if parameter.requires_grad]}]
        return torch.optim.SGD(
            _split_rates(groups, scales),
            lr=rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            nesterov=config.nesterov,
        )
    is_papers = isinstance(config, AdamWeightDecayConfig)
    decayed, free = split_decay(module) if is_papers else split_one_dimensional(module)
    groups = _split_rates([{"params": decayed}, {"params": free, "weight_decay": 0.0}], scales)
    kind = AdamWeightDecay if is_papers else torch.optim.AdamW
    return kind(groups, lr=rate, betas=config.betas, eps=config.eps, weight_decay=config.weight_decay)


def _split_rates(groups: list[dict[str, Any]], scales: Mapping[nn.Parameter, float] | None) -> list[dict[str, Any]]:
    """Groups of one rate each, in the order of their first parameters."""
    if scales is None:
        return groups
    split: list[dict[str, Any]] = []
    for group in groups:
        found: dict[float, list[nn.Parameter]] = {}
        for parameter in group["params"]:
            found.setdefault(scales.get(parameter, 1.0), []).append(parameter)
        split += [{**group, "params": parameters, RATE_SCALE: scale} for scale, parameters in found.items()]
    return split


def layer_scales(student: Classifier, layer_decay: float | None) -> dict[nn.Parameter, float] | None:
    """What the rate of each parameter is multiplied by: 1 for the head, the decay once more for each layer below it.

    Returns:
        None without a decay.

    Raises:
        InputError: the layers of the student cannot be told apart.

    Example:
        >>> from tpkd.models.registry import ModelSpec, build_model
        >>> student = build_model(ModelSpec("builtin:mlp", 3, options={"input_size": 4, "hidden": [8, 8]}))
        >>> scales = layer_scales(student, 0.5)
        >>> [scales[layer.weight] for layer in (*student.layers, student.classifier)]
        [0.25, 0.5, 1.0]
    """
    if layer_decay is None:
        return None
    depths = student.parameter_depths()
    if not any(depths.values()):
        raise InputError("expected a network of several layers, found one whose layers cannot be told apart")
    return {parameter: layer_decay ** depths[name] for name, parameter in student.named_parameters()}


def split_decay(module: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Parameters with and without weight decay: biases and whatever belongs to a LayerNorm have none."""
    decayed: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    seen: set[nn.Parameter] = set()
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            if parameter.requires_grad and parameter not in seen:
                seen.add(parameter)
                (free if isinstance(part, nn.LayerNorm) or name.endswith("bias") else decayed).append(parameter)
    return decayed, free


def split_one_dimensional(module: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Parameters with and without weight decay as timm and transformers split them.

    No decay for parameters of at most one dimension (biases, the weights of LayerNorm and BatchNorm, layer scales), for
    others whose name ends in `bias`, and for those that a timm network lists in `no_weight_decay`.

    Example:
        >>> decayed, free = split_one_dimensional(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
        >>> [parameter.shape for parameter in decayed], len(free)
        ([torch.Size([3, 2])], 3)
    """
    decayed: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    exempt = set(_exempted(module))
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            without = parameter.ndim <= 1 or name.endswith("bias") or name in exempt
            (free if without else decayed).append(parameter)
    return decayed, free


def _exempted(module: nn.Module) -> Iterator[str]:
    """What the outermost network that lists any exempts: parts of a timm network may have lists that timm ignores."""
    for prefix, part in module.named_modules():
        listed: Any = getattr(part, "no_weight_decay", None)
        if callable(listed):
            yield from (f"{prefix}.{name}" if prefix else name for name in listed())
            return


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every group the learning rate, times what its own rate is multiplied by."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get(RATE_SCALE, 1.0)
