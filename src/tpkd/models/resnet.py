"""Residual networks for 32-pixel images: three stages of basic blocks, 6n + 2 layers deep."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from tpkd.models.classifier import Classifier, Inputs, ModelOutput, tensor_inputs

STAGE_WIDTHS = (16, 32, 64)


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut, which is a 1×1 convolution where the shape changes."""

    def __init__(self, width_in: int, width_out: int, stride: int) -> None:
        """Draw the weights of one block."""
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width_out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width_out)
        self.conv2 = nn.Conv2d(width_out, width_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width_out)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or width_in != width_out:
            shortcut = nn.Conv2d(width_in, width_out, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(width_out))

    def forward(self, x: Tensor) -> Tensor:
        """Feature maps in, feature maps out."""
        residual = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(residual + self.downsample(x))


class CifarResNet(Classifier):
    """ResNet-8, 20, 56 and similar depths, with the state-dict names of the published CIFAR-100 weights."""

    layer_sizes = (STAGE_WIDTHS[0], *STAGE_WIDTHS)

    def __init__(self, num_classes: int, depth: int) -> None:
        """Draw the weights of a network of this depth, convolutions by He's rule."""
        super().__init__()
        if depth < 8 or (depth - 2) % 6:
            raise ValueError(f"depth: expected 6 n + 2 layers with n >= 1, got {depth}")
        blocks = (depth - 2) // 6
        narrow, middle, wide = STAGE_WIDTHS
        self.conv1 = nn.Conv2d(3, narrow, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(narrow)
        self.layer1 = _stage(narrow, narrow, blocks, stride=1)
        self.layer2 = _stage(narrow, middle, blocks, stride=2)
        self.layer3 = _stage(middle, wide, blocks, stride=2)
        self.fc = nn.Linear(wide, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @property
    def classifier(self) -> nn.Linear:
        """The last layer."""
        return self.fc

    def _set_classifier(self, linear: nn.Linear) -> None:
        self.fc = linear

    def _outputs(self, inputs: Inputs, layers: Sequence[int]) -> ModelOutput:
        states = [functional.relu(self.bn1(self.conv1(tensor_inputs(inputs))))]
        for stage in (self.layer1, self.layer2, self.layer3):
            states.append(stage(states[-1]))
        features = states[-1].mean((2, 3))
        return ModelOutput(self.fc(features), features, tuple(states[layer].mean((2, 3)) for layer in layers))


def _stage(width_in: int, width_out: int, blocks: int, stride: int) -> nn.Sequential:
    rest = (BasicBlock(width_out, width_out, 1) for _ in range(blocks - 1))
    return nn.Sequential(BasicBlock(width_in, width_out, stride), *rest)
