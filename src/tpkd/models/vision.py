"""Image classifiers of the timm library, with the input of their last layer as features."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from torch import Tensor, nn

from tpkd.class_names import known_names
from tpkd.errors import InputError, did_you_mean, extra
from tpkd.hub import hub_or_cache
from tpkd.models.classifier import Classifier, Inputs, ModelOutput, parameter_names, tensor_inputs
from tpkd.models.options import TimmOptions

_AUXILIARY = "aux_head"
_FURTHER_HEADS = (_AUXILIARY, "head_dist")
NO_WEIGHTS = "no weights are given"


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
        """False for networks like VOLO, whose logits also include the output of an auxiliary head on every token."""
        return not self._further_heads()

    @property
    def head_names(self) -> frozenset[str]:
        """Names in the state dict that depend on the classes, including those of auxiliary heads."""
        return parameter_names(self, (self.classifier, *self._further_heads().values()))

    def _further_heads(self) -> dict[str, nn.Module]:
        heads = {name: getattr(self.network, name, None) for name in _FURTHER_HEADS}
        return {name: head for name, head in heads.items() if head is not None}

    def heads_without(self, names: Collection[str]) -> dict[str, str]:
        """VOLO's auxiliary head, which the network can do without."""
        prefix = f"network.{_AUXILIARY}."
        own = [name for name in self.state_dict() if name.startswith(prefix)]
        return {} if any(name.startswith(prefix) for name in names) else dict.fromkeys(own, _AUXILIARY)

    def drop_heads(self, heads: Iterable[str]) -> None:
        """Remove the heads; the network uses its remaining ones."""
        for head in heads:
            setattr(self.network, head, None)

    def parameter_depths(self) -> dict[str, int]:
        """How many layers each parameter is away from the head, as timm counts them where it does.

        Raises:
            InputError: its layers cannot be told apart.
        """
        network: Any = self.network
        if not hasattr(network, "group_matcher"):
            return super().parameter_depths()
        from timm.models import group_parameters

        layers = group_parameters(network, network.group_matcher(coarse=False), reverse=True)
        last = max(layers.values())
        return {f"network.{name}": last - layer for name, layer in layers.items()}

    def _set_classifier(self, linear: nn.Linear) -> None:
        path = next(name for name, module in self.network.named_modules() if module is self.classifier)
        self.network.set_submodule(path, linear)
        for name in self._further_heads():
            setattr(self.network, name, None)  # it belongs to the old classes

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
    """Refuse a name that timm does not know and suggest the closest one."""
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
    settings = {key: value for key, value in settings.items() if value}  # some networks accept only one of the two
    with _fetching(name) if options.pretrained else nullcontext():
        network = timm.create_model(name, pretrained=options.pretrained, num_classes=num_classes, **settings)
    model = TimmClassifier(name, network)
    published = network.pretrained_cfg.get("num_classes")
    if not options.pretrained:
        model.untrained = NO_WEIGHTS
    elif published != num_classes:
        model.untrained = f"the published weights are for {published} classes, and the head for {num_classes} is random"
    else:
        model.class_names = known_names(network.pretrained_cfg.get("label_names"))
    return model


@contextmanager
def _fetching(name: str) -> Iterator[None]:
    """Report in one line that published weights cannot be fetched, whatever exception the libraries raise."""
    try:
        with hub_or_cache():
            yield
    except Exception as error:  # five libraries are involved, each with its own exceptions
        words = str(error).strip().splitlines()
        reason = f"{type(error).__name__}: {words[0]}" if words else type(error).__name__
        raise InputError(
            f"options.pretrained: the weights of timm:{name} cannot be fetched ({reason[:200]}); without a network, "
            "fetch them elsewhere and say weights: FILE"
        ) from error
