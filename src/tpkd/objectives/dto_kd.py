"""DTO-KD: label learning, imitation and feature matching weighed against each other anew at every step."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import orthogonal

from tpkd.geometry.inputs import computation_dtype
from tpkd.objectives.balance import (
    LOSS_OFFSET,
    AdamState,
    adam_step,
    amortised_gradient,
    effective_weights,
    literal_gradient,
    min_norm_weights,
)
from tpkd.objectives.base import Batch, Objective, PaperAccuracy, TeacherAverage
from tpkd.objectives.cross_entropy import cross_entropy_loss
from tpkd.objectives.kl_dist import kl_dist_loss
from tpkd.objectives.reduction import IGNORE_INDEX, as_rows, check_weight, reduce_rows, without_ignored
from tpkd.objectives.registry import register

_VARIANTS = ("amortised", "exact", "literal")
_LAYER_FEATURES = ("none", "own-objective", "with-distillation")


def feature_rows(
    projected_features: Float[Tensor, "rows D"], teacher_features: Float[Tensor, "rows D"]
) -> Float[Tensor, "rows"]:
    """Smooth L1 distance of each row to the layer-normalised teacher feature, averaged over its coordinates.

    Example:
        >>> feature_rows(torch.zeros(1, 2), torch.tensor([[1.0, -1.0]]))
        tensor([0.5000])
    """
    target = functional.layer_norm(teacher_features, teacher_features.shape[-1:])
    return functional.smooth_l1_loss(projected_features, target, reduction="none").mean(-1)


def layer_projectors(sizes: Sequence[tuple[int, int]]) -> nn.ModuleList:
    """One bias-free projection with orthonormal rows or columns for each (student size, teacher size).

    Example:
        >>> (projector,) = layer_projectors([(2, 3)])
        >>> torch.allclose(projector.weight.T @ projector.weight, torch.eye(2), atol=1e-6)
        True
    """
    # torch's default map for such shapes keeps signs in weights that it truncates to integers: the least weight decay
    # would turn them, and with them the whole projection, to zero. The Cayley map is smooth in all of its weights.
    linear = [nn.Linear(student, teacher, bias=False) for student, teacher in sizes]
    return nn.ModuleList(orthogonal(layer, orthogonal_map="cayley") for layer in linear)


@register
class DTOKD(Objective):
    """Distillation as a trade-off of objectives: label loss, imitation, and layer features if asked.

    A reconstruction: the authors published no code, and the practical update in their paper has a misprint. Variants:

    - `"amortised"` (default): weights pi = softmax(w) on log-losses, w moved after each step by how much each loss
      improved on the same batch (FAMO). `normalise` divides by c = sum_i pi_i / L_i, so that the weights on the losses'
      own gradients sum to one; without it the step grows without bound as a loss vanishes.
    - `"exact"`: the shortest combination of the log-losses' gradients on the simplex, no state.
    - `"literal"`: the printed weight update, which does not do what its text says; kept for comparison.

    `layer_features` adds the distance of orthogonally projected student layers to layer-normalised teacher layers, our
    reading of the multi-layer distillation in the paper's text runs, as an objective of its own or within distillation.
    The projectors are built from `layer_sizes`, pairs of (student, teacher) feature size, or from the first batch.
    """

    variant: str = "amortised"
    normalise: bool = True
    layer_features: str = "none"
    temperature: float = 1.0
    weight_lr: float = 0.025
    weight_decay: float = 0.01
    layer_sizes: tuple[tuple[int, int], ...] | None = None
    _projectors: nn.ModuleList | None = field(default=None, init=False, repr=False)
    _balance: AdamState = field(init=False, repr=False)
    _seen: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)
    _before: Tensor | None = field(default=None, init=False, repr=False)

    name = "dto-kd"
    title = "DTO-KD"
    summary = "cross-entropy and imitation under weights that follow their progress"
    source = "Hayder et al. 2026; FAMO for the amortised update, VkD for the feature loss"
    reconstruction = (
        "all but the min-norm problem: no code is public; the weight update, its normalisation, the losses "
        "and the feature term are our reading"
    )
    paper_accuracy = PaperAccuracy(vision=(87.81, 0.11), text=(93.46, 0.23))
    average_condition = "set layer_features=none, because layers of different networks have no common average"

    def check(self) -> None:
        """Refuse an unknown variant, and set up what the settings ask for."""
        if self.variant not in _VARIANTS:
            raise ValueError(f"variant: expected one of {', '.join(_VARIANTS)}, got {self.variant!r}")
        if self.layer_features not in _LAYER_FEATURES:
            expected = ", ".join(_LAYER_FEATURES)
            raise ValueError(f"layer_features: expected one of {expected}, got {self.layer_features!r}")
        check_weight("weight_lr", self.weight_lr)
        check_weight("weight_decay", self.weight_decay)
        count = len(self.objective_names)
        initial = torch.full((count,), 1 / count) if self.variant == "literal" else torch.zeros(count)
        self._balance = AdamState.start(initial)
        if self.layer_sizes is not None and self._uses_features:
            self._projectors = layer_projectors(self.layer_sizes)

    @property
    def objective_names(self) -> tuple[str, ...]:
        """The losses that are weighed against each other, in the order of the weights."""
        names = ("label", "distillation")
        return (*names, "features") if self.layer_features == "own-objective" else names

    @property
    def weights(self) -> Float[Tensor, "objectives"]:
        """pi, the current weights of the log-losses; the exact variant has none of its own."""
        return self._balance.weights if self.variant == "literal" else self._balance.weights.softmax(0)

    @property
    def needs(self) -> frozenset[str]:
        """Labels, teacher and one gradient a loss; a second evaluation to move the weights; layer features if asked."""
        needs = {"labels", "teacher_logits", "objective_gradients"}
        if self.variant != "exact":
            needs |= {"post_step"}
        if self._uses_features:
            needs |= {"layer_features", "teacher_layer_features"}
        return frozenset(needs)

    @property
    def teacher_average(self) -> TeacherAverage | None:
        """Without layer features: those of different networks have no common average."""
        return None if self._uses_features else "probabilities"

    @property
    def separable(self) -> bool:
        """The weights depend on the losses of the whole batch."""
        return False

    @property
    def _uses_features(self) -> bool:
        return self.layer_features != "none"

    def compute_losses(self, batch: Batch) -> dict[str, Tensor]:
        """The losses that `combine` weighs, remembered until then."""
        losses = self._objectives(batch)
        if torch.is_grad_enabled():  # an evaluation between steps does not count
            for name, loss in losses.items():
                self._seen[name] = self._seen.get(name, 0.0) + loss.detach()
        return losses

    def _objectives(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.labels is not None
        assert isinstance(batch.teacher_logits, Tensor)
        student, labels, num_items = batch.student_logits, batch.labels, batch.num_items
        label = cross_entropy_loss(student, labels, num_items=num_items)
        distillation = kl_dist_loss(
            student, batch.teacher_logits, labels, temperature=self.temperature, num_items=num_items
        )
        if not self._uses_features:
            return {"label": label, "distillation": distillation}
        features = self._feature_loss(batch)
        if self.layer_features == "with-distillation":
            return {"label": label, "distillation": distillation + features}
        return {"label": label, "distillation": distillation, "features": features}

    def _feature_loss(self, batch: Batch) -> Tensor:
        assert batch.layer_features is not None
        assert batch.teacher_layer_features is not None
        student, teacher = list(batch.layer_features), list(batch.teacher_layer_features)
        if len(student) != len(teacher) or not student:
            raise ValueError(
                f"teacher_layer_features: expected one for each of {len(student)} layer_features, got {len(teacher)}"
            )
        if self._projectors is None:
            sizes = [(s.shape[-1], t.shape[-1]) for s, t in zip(student, teacher, strict=True)]
            self._projectors = layer_projectors(sizes).to(student[0].device, computation_dtype(student[0]))
        rows = as_rows(batch.student_logits, {}, batch.labels, ignore_index=IGNORE_INDEX)
        num_rows = len(rows.labels)
        losses = []
        for projector, s, t in zip(self._projectors, student, teacher, strict=True):
            if s.ndim != 2 or t.ndim != 2 or not len(s) == len(t) == num_rows:
                found = f"{tuple(s.shape)} and {tuple(t.shape)}"
                raise ValueError(f"layer_features: expected pooled features ({num_rows}, D) of both, got {found}")
            dtype = next(projector.parameters()).dtype
            projected = projector(without_ignored(s.to(dtype), rows.valid))
            losses.append(feature_rows(projected, without_ignored(t.detach().to(dtype), rows.valid)))
        return reduce_rows(torch.stack(losses).mean(0), rows, reduction="mean", num_items=batch.num_items)

    def combine(self, gradients: Mapping[str, Tensor], values: Mapping[str, Tensor] | None = None) -> Tensor:
        """The step of this batch: each loss's gradient under its current weight."""
        values = self._seen if values is None else values
        missing = [name for name in self.objective_names if name not in gradients or name not in values]
        if missing:
            raise ValueError(f"gradients: expected a gradient and a value of {', '.join(missing)}")
        losses = torch.stack([values[name].detach() for name in self.objective_names])
        found = torch.stack([gradients[name] for name in self.objective_names])
        # Over a small loss a half-precision gradient would overflow.
        stacked = found.to(torch.promote_types(found.dtype, losses.dtype))
        losses = losses.to(stacked.device)
        self._seen = {}
        if self.variant == "exact":
            log_gradients = stacked / (losses + LOSS_OFFSET).unsqueeze(-1)
            return (min_norm_weights(log_gradients) @ log_gradients).to(found.dtype)
        self._before = losses
        normalise = self.normalise and self.variant == "amortised"
        weights = effective_weights(self.weights.to(stacked), losses.to(stacked), normalise=normalise)
        return (weights @ stacked).to(found.dtype)

    def after_step(self, batch: Batch) -> None:
        """Move the weights by what the step did to each loss; a loss that is not finite moves nothing."""
        if self.variant == "exact":
            return
        if self._before is None:
            raise RuntimeError("after_step: expected a call of combine for the same batch before it")
        with torch.no_grad():
            losses = self._objectives(batch)
        before, self._before = self._before, None
        after = torch.stack([losses[name] for name in self.objective_names]).to(before)
        if not torch.isfinite(torch.stack([before, after])).all():
            return
        state = self._balance.to(before)
        if self.variant == "literal":
            moved = self._move(state, literal_gradient(state.weights, after))
            # As printed, the weights themselves pass through the softmax, which alone draws them to uniform.
            self._balance = replace(moved, weights=moved.weights.softmax(0))
        else:
            self._balance = self._move(state, amortised_gradient(state.weights, before, after))

    def _move(self, state: AdamState, gradient: Tensor) -> AdamState:
        return adam_step(state, gradient, learning_rate=self.weight_lr, weight_decay=self.weight_decay)

    def modules(self) -> dict[str, nn.Module]:
        """The layer projectors, where layer features are asked for."""
        if not self._uses_features:
            return {}
        if self._projectors is None:
            raise RuntimeError(
                "the layer projectors of DTO-KD are built at the first batch: pass layer_sizes to have them now"
            )
        return {"projectors": self._projectors}

    def metrics(self, batch: Batch) -> dict[str, Tensor]:
        """The current weight of each log-loss."""
        if self.variant == "exact":
            return {}
        return {f"weight_{name}": weight for name, weight in zip(self.objective_names, self.weights, strict=True)}

    def state_dict(self) -> dict[str, Any]:
        """The weights with the moments of their optimiser, and the projectors once they exist."""
        state: dict[str, Any] = {f"balance.{name}": value for name, value in vars(self._balance).items()}
        if self._projectors is not None:
            state |= {f"projectors.{name}": value for name, value in self._projectors.state_dict().items()}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take weights and projectors back, building the projectors with the saved sizes where there are none yet."""
        balance = _without_prefix("balance.", state)
        if balance.keys() != vars(self._balance).keys() or len(balance["weights"]) != len(self.objective_names):
            expected = f"the balance of {', '.join(self.objective_names)}"
            raise ValueError(f"state: expected {expected}, got {', '.join(sorted(state)) or 'nothing'}")
        self._balance = AdamState(**balance)
        projectors = _without_prefix("projectors.", state)
        if not projectors:
            return
        if self._projectors is None:
            originals = [value for name, value in projectors.items() if name.endswith("weight.original")]
            self._projectors = layer_projectors([(value.shape[1], value.shape[0]) for value in originals])
            self._projectors.to(originals[0].device, originals[0].dtype)
        self._projectors.load_state_dict(projectors)


def _without_prefix(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
