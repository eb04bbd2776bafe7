"""The networks against NumPy, against the published table, and against functional torch."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.special import erf, logsumexp
from sklearn.datasets import load_digits
from tolerances import summed
from torch.nn import functional as F

from firstish.problems import Options, get
from firstish.problems.datasets import load_fashion_mnist, load_imagenette
from firstish.problems.imagenette_resnet import normalised
from firstish.problems.mlp import mlp
from firstish.problems.resnet import ResNet18
from firstish.problems.seeded import seeded

# ResNet-18 as published and as torchvision names it: the convolutions and the linear layer, each
# convolution with the norm that follows it.
TABLE = [
    ("conv1", "bn1", (64, 3, 7, 7)),
    ("layer1.0.conv1", "layer1.0.bn1", (64, 64, 3, 3)),
    ("layer1.0.conv2", "layer1.0.bn2", (64, 64, 3, 3)),
    ("layer1.1.conv1", "layer1.1.bn1", (64, 64, 3, 3)),
    ("layer1.1.conv2", "layer1.1.bn2", (64, 64, 3, 3)),
    ("layer2.0.conv1", "layer2.0.bn1", (128, 64, 3, 3)),
    ("layer2.0.conv2", "layer2.0.bn2", (128, 128, 3, 3)),
    ("layer2.0.downsample.0", "layer2.0.downsample.1", (128, 64, 1, 1)),
    ("layer2.1.conv1", "layer2.1.bn1", (128, 128, 3, 3)),
    ("layer2.1.conv2", "layer2.1.bn2", (128, 128, 3, 3)),
    ("layer3.0.conv1", "layer3.0.bn1", (256, 128, 3, 3)),
    ("layer3.0.conv2", "layer3.0.bn2", (256, 256, 3, 3)),
    ("layer3.0.downsample.0", "layer3.0.downsample.1", (256, 128, 1, 1)),
    ("layer3.1.conv1", "layer3.1.bn1", (256, 256, 3, 3)),
    ("layer3.1.conv2", "layer3.1.bn2", (256, 256, 3, 3)),
    ("layer4.0.conv1", "layer4.0.bn1", (512, 256, 3, 3)),
    ("layer4.0.conv2", "layer4.0.bn2", (512, 512, 3, 3)),
    ("layer4.0.downsample.0", "layer4.0.downsample.1", (512, 256, 1, 1)),
    ("layer4.1.conv1", "layer4.1.bn1", (512, 512, 3, 3)),
    ("layer4.1.conv2", "layer4.1.bn2", (512, 512, 3, 3)),
]
SHRINKING = {  # convolutions with stride 2
    "conv1",
    *(f"layer{k}.0.{name}" for k in (2, 3, 4) for name in ("conv1", "downsample.0")),
}


@pytest.fixture(scope="module")
def resnet():
    with seeded(0):
        return ResNet18(10)


def test_resnet_layer_by_layer(resnet):
    wanted = []
    for conv, norm, shape in TABLE:
        wanted += [(f"{conv}.weight", shape)]
        wanted += [(f"{norm}.weight", shape[:1]), (f"{norm}.bias", shape[:1])]
    wanted += [("fc.weight", (10, 512)), ("fc.bias", (10,))]
    found = [(name, tuple(p.shape)) for name, p in resnet.named_parameters()]
    assert found == wanted
    assert dict(resnet.named_buffers()) == {}  # no running statistics


def test_resnet_parameter_count(resnet):
    convolutions = sum(math.prod(shape) for _, _, shape in TABLE)
    norms = sum(2 * shape[0] for _, _, shape in TABLE)
    assert (convolutions, norms) == (11_166_912, 9_600)
    total = sum(p.numel() for p in resnet.parameters())
    assert total == convolutions + norms + 512 * 10 + 10 == 11_181_642
    assert sum(p.numel() for p in ResNet18(1000).parameters()) == 11_689_512  # as published


def test_resnet_strides_and_padding(resnet):
    modules = dict(resnet.named_modules())
    for name, norm, shape in TABLE:
        conv = modules[name]
        side = 2 if name in SHRINKING else 1
        assert conv.stride == (side, side), name
        assert conv.padding == (shape[-1] // 2, shape[-1] // 2), name
        assert conv.bias is None
        assert modules[norm].num_groups == 1
        assert modules[norm].eps == 1e-5
    pool = resnet.maxpool
    assert (pool.kernel_size, pool.stride, pool.padding) == (3, 2, 1)
    kinds = {type(m).__name__ for m in resnet.modules()}
    assert not kinds & {"ReLU", "BatchNorm2d"}


def test_resnet_start(resnet):
    for name, parameter in resnet.named_parameters():
        p = parameter.detach()
        if p.dim() == 4:
            wanted = math.sqrt(2 / (p.shape[0] * p.shape[2] * p.shape[3]))  # He, on the outputs
            assert float(p.std()) == pytest.approx(wanted, rel=0.05), name
            assert abs(float(p.mean())) < 4 * wanted / math.sqrt(p.numel()), name
            assert float(p.abs().max()) > 3 * wanted  # normal, not uniform
        elif name.startswith("fc"):
            bound = 1 / math.sqrt(512)
            assert float(p.abs().max()) <= bound
            assert float(p.abs().max()) > 0.6 * bound
        else:
            assert (p == (1 if name.endswith("weight") else 0)).all(), name


def reference_resnet(p, x):
    """The same network in functional torch, LayerNorm spelt as such."""

    def norm(name, x):
        scale, shift = p[f"{name}.weight"], p[f"{name}.bias"]
        return F.layer_norm(x, x.shape[1:]) * scale[:, None, None] + shift[:, None, None]

    def conv(name, x):
        weight = p[f"{name}.weight"]
        side = 2 if name in SHRINKING else 1
        return F.conv2d(x, weight, stride=side, padding=weight.shape[-1] // 2)

    x = F.max_pool2d(F.gelu(norm("bn1", conv("conv1", x))), 3, 2, 1)
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            at = f"layer{stage}.{block}"
            out = F.gelu(norm(f"{at}.bn1", conv(f"{at}.conv1", x)))
            out = norm(f"{at}.bn2", conv(f"{at}.conv2", out))
            if block == 0 and stage > 1:
                x = norm(f"{at}.downsample.1", conv(f"{at}.downsample.0", x))
            x = F.gelu(out + x)
    return F.linear(x.mean((2, 3)), p["fc.weight"], p["fc.bias"])


@pytest.mark.parametrize("side", [32, 40])
def test_resnet_computes_the_published_network(side):
    with seeded(1):
        model = ResNet18(10).double()
        with torch.no_grad():
            for p in model.parameters():  # norms too, or their scales would not be seen
                p.add_(0.1 * torch.randn(p.shape))
    x = torch.from_numpy(np.random.RandomState(0).randn(2, 3, side, side))
    with torch.no_grad():
        found = model(x)
        wanted = reference_resnet(dict(model.named_parameters()), x)
    assert found.shape == (2, 10)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


def test_resnet_classes():
    assert ResNet18(3).fc.out_features == 3
    with pytest.raises(ValueError, match=r"`ResNet18\(classes=...\)` must be at least 1, got 0"):
        ResNet18(0)


def test_normalised():
    images = np.random.RandomState(0).randint(0, 256, (5, 3, 4, 4)).astype(np.uint8)
    images[:, 1] //= 3
    found = normalised(images, torch.float64).numpy()
    np.testing.assert_allclose(found.mean((0, 2, 3)), 0, atol=summed(80))
    np.testing.assert_allclose(found.std((0, 2, 3)), 1, rtol=summed(80))
    corner = (images[0, 1, 0, 0] - images[:, 1].mean()) / images[:, 1].std()
    assert found[0, 1, 0, 0] == pytest.approx(corner, rel=1e-12)


# Fully connected ------------------------------------------------------------------------------


def mlp_value(x, widths, inputs, labels, weight_decay):
    """The formula in plain NumPy."""
    rest, a = x, inputs
    for k, (m, n) in enumerate(pairwise(widths)):
        W, b, rest = rest[: m * n].reshape(n, m), rest[m * n : m * n + n], rest[m * n + n :]
        a = a @ W.T + b
        if k < len(widths) - 2:
            a = a * (1 + erf(a / np.sqrt(2))) / 2
    assert rest.size == 0
    losses = logsumexp(a, axis=1) - a[np.arange(len(labels)), labels]
    return losses.mean() + weight_decay / 2 * np.sum(x**2)


def test_digits_mlp_is_the_formula():
    bunch = load_digits()
    instance = get("digits-mlp").load(Options(subset=300))
    rng = np.random.RandomState(0)
    for x in (instance.x0.numpy(), 0.3 * rng.randn(6310)):
        wanted = mlp_value(x, (64, 50, 50, 10), bunch.data[:300] / 16, bunch.target[:300], 1e-3)
        point = instance.objective.at(torch.from_numpy(x))
        assert point.value == pytest.approx(wanted, rel=1e-13)
        direction = rng.randn(x.size)
        t = 1e-6
        ahead, behind = (
            mlp_value(
                x + s * direction, (64, 50, 50, 10), bunch.data[:300] / 16, bunch.target[:300], 1e-3
            )
            for s in (t, -t)
        )
        slope = float(point.grad @ torch.from_numpy(direction))
        assert slope == pytest.approx((ahead - behind) / (2 * t), rel=1e-6)


def test_real_fashion_mlp_is_the_formula(real_data):
    data = load_fashion_mnist(data=real_data)
    instance = get("fashion-mlp").load(Options(data=real_data, subset=100))
    x = 0.1 * np.random.RandomState(0).randn(89_610)
    inputs = data.images[:100].reshape(100, 784) / 255
    wanted = mlp_value(x, (784, 100, 100, 10), inputs, data.labels[:100], 1e-3)
    assert instance.objective.at(torch.from_numpy(x)).value == pytest.approx(wanted, rel=1e-13)


def test_real_imagenette_resnet_is_the_formula(real_data):
    instance = get("imagenette-resnet").load(Options(data=real_data, subset=6, seed=2))
    rows = np.random.RandomState(0).permutation(9469)[:6]
    data = load_imagenette(data=real_data, size=32, rows=rows)
    pixels = data.images.astype(np.float64)
    mean, std = (getattr(pixels, f)((0, 2, 3), keepdims=True) for f in ("mean", "std"))
    inputs = torch.from_numpy((pixels - mean) / std).float()
    with seeded(2), torch.no_grad():
        parameters = {n: p.detach() for n, p in ResNet18(10).named_parameters()}
        logits = reference_resnet(parameters, inputs).double()
    loss = F.cross_entropy(logits, torch.from_numpy(data.labels))
    squares = sum(float((p.double() ** 2).sum()) for p in parameters.values())
    wanted = float(loss) + 1e-5 / 2 * squares
    assert instance.objective.at(instance.x0).value == pytest.approx(wanted, rel=1e-5)


def test_mlp_start_is_pytorchs_default():
    model = mlp((784, 100, 100, 10), seed=3)
    torch.set_default_dtype(torch.float32)  # the fixture puts it back
    torch.manual_seed(3)
    wanted = torch.nn.Sequential(
        torch.nn.Linear(784, 100),
        torch.nn.GELU(),
        torch.nn.Linear(100, 100),
        torch.nn.GELU(),
        torch.nn.Linear(100, 10),
    )
    for found, one in zip(model.parameters(), wanted.parameters(), strict=True):
        assert torch.equal(found, one)
        bound = 1 / math.sqrt(100)  # the widest of the three layers' bounds
        assert float(found.detach().abs().max()) <= bound
    assert str(model) == str(wanted)
