"""ResNet-18 on Imagenette."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firstish.problems import mlp, network
from firstish.problems.base import Instance, Options, Problem
from firstish.problems.datasets.readers.imagenette import CLASSES, ROWS, load_imagenette
from firstish.problems.resnet import ResNet18
from firstish.problems.rows import mixed_rows, precision
from firstish.problems.seeded import seeded

_SIDE = 32
WEIGHT_DECAY = 1e-5
_AT_ONCE = 1000  # images; the graph of a product then takes 2.7 GB


def normalised(images: NDArray[np.uint8], dtype: torch.dtype) -> Tensor:
    """The images, each channel shifted and scaled to mean 0 and standard deviation 1 overall."""
    pixels = torch.from_numpy(images).to(torch.float64) / 255
    mean = pixels.mean((0, 2, 3), keepdim=True)
    std = pixels.std((0, 2, 3), correction=0, keepdim=True)
    return ((pixels - mean) / std).to(dtype)


def _build(options: Options) -> Instance:
    rows = mixed_rows(ROWS["train"], options, IMAGENETTE_RESNET.name)
    data = load_imagenette("train", options.data, size=_SIDE, rows=rows)
    dtype = precision(options, IMAGENETTE_RESNET.dtype)
    with seeded(options.seed):
        model = ResNet18(len(CLASSES))
    return network.classifier(
        model.to(options.device, dtype),
        normalised(data.images, dtype).to(options.device),
        torch.from_numpy(data.labels).to(options.device),
        WEIGHT_DECAY,
        options,
        at_once=_AT_ONCE,
    )


IMAGENETTE_RESNET = Problem(
    name="imagenette-resnet",
    title="ResNet-18 on Imagenette",
    formula=mlp.FORMULA,
    formula_text=mlp.FORMULA_TEXT,
    choices=(
        "The paper's: h is torchvision's ResNet-18 (7×7 stem with stride 2, max-pooling, its "
        "default start) with GELU for ReLU and LayerNorm for BatchNorm, images of 32×32, λ = 1e-5, "
        "float32, ρ = 0, σ = 1e-6, ‖g‖ ≤ 1e-4 or 10,000 oracle calls, the grids and their winners.",
        "The paper does not say how LayerNorm acts on feature maps; here it is one group over "
        "channel, height and width, with a scale and a shift per channel.",
        "Ours starts from images of 64×64 (imagenette2-64.zip), squeezed to squares; the paper's "
        "from the 160 px version. Where the zip file is absent the 160 px version is used.",
        "Images are resized by averaging (Pillow's box filter) to 32×32, the aspect ratio not "
        "kept, and then normalised; the paper normalises first, with constants it does not state. "
        "Here they are the mean and standard deviation of each channel over the training pixels "
        "used.",
        "The files are sorted by class, so images are taken in a fixed random order, the same for "
        "every seed; a subset is the first of them.",
        "λ applies to norms and biases as to the weights. The start is drawn from the seed; the "
        "paper's is unknown.",
        "Images are evaluated 1,000 at a time: with the graph of the product that takes 2.7 GB, "
        "and all 9,469 at once would take some 18 GB.",
    ),
    build=_build,
    dtype=torch.float32,
    rho=0.0,
    gtol=1e-4,
    budget=10_000,
    scaling="MRCG",
    grids=network.GRIDS,
    rates={"fixed": 1e-1, "adam": 1e-3, "heavy-ball": 1e-2, "nesterov": 1e-2},
)
