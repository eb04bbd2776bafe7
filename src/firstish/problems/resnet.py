"""ResNet-18 with GELU in place of ReLU and one-group LayerNorm in place of BatchNorm.

Otherwise it is the published architecture (He et al., 2016) as torchvision builds it: a 7x7 stem
with stride 2, max-pooling, four stages of two blocks, average pooling, one linear layer. The names
of the parameters, their order of creation and their initial values are torchvision's.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from firstish._validate import check_count


def layer_norm(channels: int) -> nn.GroupNorm:
    """LayerNorm of a feature map: over channel, height and width, with a scale per channel."""
    return nn.GroupNorm(1, channels, dtype=torch.float32)


def _conv(inputs: int, outputs: int, size: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(
        inputs,
        outputs,
        size,
        stride=stride,
        padding=size // 2,
        bias=False,
        dtype=torch.float32,
    )


class BasicBlock(nn.Module):
    """Two 3x3 convolutions plus a shortcut: the identity, or a 1x1 convolution to change shape."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        changes = stride != 1 or inputs != outputs
        downsample = (
            nn.Sequential(_conv(inputs, outputs, 1, stride), layer_norm(outputs))
            if changes
            else None
        )  # created first and registered last, as in torchvision, to draw the same parameters
        self.conv1 = _conv(inputs, outputs, 3, stride)
        self.bn1 = layer_norm(outputs)
        self.gelu = nn.GELU()
        self.conv2 = _conv(outputs, outputs, 3, 1)
        self.bn2 = layer_norm(outputs)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        """GELU(norm(conv(GELU(norm(conv(x))))) + x)."""
        out = self.gelu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        identity = x if self.downsample is None else self.downsample(x)
        result: Tensor = self.gelu(out + identity)
        return result


class ResNet18(nn.Module):
    """ResNet-18 in float32; 11,181,642 parameters at 10 classes.

    Args:
        classes: the number of outputs.
    """

    def __init__(self, classes: int = 10) -> None:
        check_count("ResNet18", "classes", classes)
        super().__init__()
        self.conv1 = _conv(3, 64, 7, 2)
        self.bn1 = layer_norm(64)
        self.gelu = nn.GELU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, classes, dtype=torch.float32)
        self._initialise()

    def _initialise(self) -> None:
        """Initialise convolutions by He's rule (fan out) and norms to 1 and 0, as torchvision."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.GroupNorm):
                nn.init.ones_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images, (n, 3, height, width) to (n, classes)."""
        x = self.maxpool(self.gelu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits
