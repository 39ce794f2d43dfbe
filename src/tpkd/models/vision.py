"""Image classifiers of the timm library, with the input of their last layer as features."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from tpkd.files import InputError, did_you_mean, extra
from tpkd.models.classifier import Classifier, Inputs, ModelOutput, parameter_names, tensor_inputs
from tpkd.models.options import TimmOptions

_FURTHER_HEADS = ("aux_head", "head_dist")


class TimmClassifier(Classifier):
    """A timm network; logits are the network's own, features are what enters its classifier.

    timm's networks have no common notion of layers, so none are offered.
    """

    def __init__(self, name: str, network: nn.Module) -> None:
        """Take a network whose classifier is one linear layer."""
        super().__init__()
        self.network = network
        if not isinstance(_classifier(network), nn.Linear):
            found = type(_classifier(network)).__name__
            raise InputError(f"timm:{name}: expected a classifier that is one linear layer, found {found}")

    @property
    def classifier(self) -> nn.Linear:
        """The network's classifier."""
        linear: nn.Linear = _classifier(self.network)
        return linear

    @property
    def has_linear_head(self) -> bool:
        """False for networks like VOLO, whose logits also hold an auxiliary head's answer on every token."""
        return not self._further_heads()

    @property
    def head_names(self) -> frozenset[str]:
        """Names in the state dict that depend on the classes, those of auxiliary heads too."""
        return parameter_names(self, (self.classifier, *self._further_heads().values()))

    def _further_heads(self) -> dict[str, nn.Module]:
        heads = {name: getattr(self.network, name, None) for name in _FURTHER_HEADS}
        return {name: head for name, head in heads.items() if head is not None}

    def _set_classifier(self, linear: nn.Linear) -> None:
        path = next(name for name, module in self.network.named_modules() if module is self.classifier)
        self.network.set_submodule(path, linear)
        for name in self._further_heads():
            setattr(self.network, name, None)  # it speaks of the old classes

    def forward(self, inputs: Inputs) -> Tensor:
        """Logits, without the hook that `outputs` needs: a compiler need not see it."""
        logits: Tensor = self.network(tensor_inputs(inputs))
        return logits

    def _outputs(self, inputs: Inputs, layers: Sequence[int]) -> ModelOutput:
        seen: list[Tensor] = []
        # A hook holds for every architecture, while forward_head differs from one to the next.
        handle = self.classifier.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
        try:
            logits = self.network(tensor_inputs(inputs))
        finally:
            handle.remove()
        (features,) = seen
        return ModelOutput(logits, features, ())


def _classifier(network: Any) -> Any:
    return network.get_classifier()


def check_timm(name: str) -> None:
    """Refuse a name that timm does not know, with the closest it does."""
    with extra("vision"):
        import timm
    if not timm.is_model(name):
        hint = did_you_mean(name, timm.list_models())
        raise InputError(f"timm:{name}: timm {timm.__version__} has no model of this name{hint}")


def build_timm(name: str, num_classes: int, options: TimmOptions) -> TimmClassifier:
    """A timm network by name."""
    with extra("vision"):
        import timm
    settings = {"drop_rate": options.drop_rate, "drop_path_rate": options.drop_path_rate}
    network = timm.create_model(
        name,
        pretrained=options.pretrained,
        num_classes=num_classes,
        **{key: value for key, value in settings.items() if value},  # some networks know only one of the two
    )
    return TimmClassifier(name, network)
