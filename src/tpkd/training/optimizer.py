"""The paper's two optimisers over a network: SGD with momentum, and Google's Adam with decoupled decay."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from tpkd.config.schema import AdamWeightDecayConfig, SGDConfig

_LATE_STEP = 1e9


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


def build_optimizer(config: SGDConfig | AdamWeightDecayConfig, module: nn.Module) -> torch.optim.Optimizer:
    """The configured optimiser over all parameters of a module that learn.

    Example:
        >>> optimizer = build_optimizer(AdamWeightDecayConfig(learning_rate=3e-4), nn.Linear(2, 3))
        >>> [(group["weight_decay"], len(group["params"])) for group in optimizer.param_groups]
        [(0.01, 1), (0.0, 1)]
    """
    if isinstance(config, SGDConfig):
        return torch.optim.SGD(
            [parameter for parameter in module.parameters() if parameter.requires_grad],
            lr=config.learning_rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
        )
    decayed, free = split_decay(module)
    groups = [{"params": decayed}, {"params": free, "weight_decay": 0.0}]
    return AdamWeightDecay(
        groups, lr=config.learning_rate, betas=config.betas, eps=config.eps, weight_decay=config.weight_decay
    )


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


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every group the same learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate
