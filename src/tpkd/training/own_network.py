"""A network of one's own as a student: any `nn.Module` that returns logits."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tpkd.errors import InputError, reason
from tpkd.models.classifier import Classifier, Inputs, ModelOutput
from tpkd.teacher.teacher import logits_of


class OwnNetwork(Classifier):
    """A user's network; its state dict is the network's own, so that what is saved can be loaded without tpkd.

    It gives logits and nothing else: objectives that need features are refused.

    Example:
        >>> OwnNetwork(nn.Linear(4, 3), num_classes=3)(torch.zeros(2, 4)).shape
        torch.Size([2, 3])
    """

    def __init__(self, network: nn.Module, num_classes: int) -> None:
        """Take the network as it is."""
        super().__init__()
        self.network = network
        self._num_classes = num_classes

    @property
    def classifier(self) -> nn.Linear:
        """Refused: where the last layer is, only the user knows."""
        raise InputError("student: expected a network of tpkd, timm or transformers where its last layer is needed")

    def _set_classifier(self, linear: nn.Linear) -> None:
        raise InputError("student: expected a network of tpkd, timm or transformers where its last layer is replaced")

    @property
    def num_classes(self) -> int:
        """How many logits it gives."""
        return self._num_classes

    @property
    def feature_size(self) -> int:
        """The size of what stands for features: the logits."""
        return self._num_classes

    @property
    def has_linear_head(self) -> bool:
        """Not known, and so not relied on."""
        return False

    def _outputs(self, inputs: Inputs, layers: Sequence[int]) -> ModelOutput:
        output = self.network(**inputs) if isinstance(inputs, Mapping) else self.network(inputs)
        logits = logits_of(output)
        return ModelOutput(logits, logits, ())

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """That of the network, under its own names."""
        return self.network.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load what `state_dict` gave."""
        return self.network.load_state_dict(state_dict, strict, assign)


@torch.no_grad()
def check_logits(owner: str, network: nn.Module, inputs: Inputs, num_classes: int) -> None:
    """Try a network on one sample, so that a mistake is reported before any long computation.

    Raises:
        InputError: it fails, or does not give one logit per class.

    Example:
        >>> check_logits("student", nn.Linear(4, 2), torch.zeros(1, 4), num_classes=3)
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: student: expected logits of shape (1, 3), one per class, found (1, 2)
    """
    training = network.training
    device = next((tensor.device for tensor in network.parameters()), torch.device("cpu"))
    try:
        if isinstance(inputs, Mapping):
            output = network.eval()(**{name: value.to(device) for name, value in inputs.items()})
        else:
            output = network.eval()(inputs.to(device))
    except torch.OutOfMemoryError:
        raise
    except (ValueError, RuntimeError, IndexError, TypeError, AssertionError) as error:  # networks raise any of these
        shapes = tuple(inputs.shape) if isinstance(inputs, Tensor) else ", ".join(inputs)
        raise InputError(f"{owner}: does not fit its inputs, {shapes}: {reason(error)}") from error
    finally:
        network.train(training)
    found = tuple(logits_of(output).shape)
    if found != (1, num_classes):
        raise InputError(f"{owner}: expected logits of shape (1, {num_classes}), one per class, found {found}")
