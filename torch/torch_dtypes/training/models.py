"""Networks that the number-format literature trains, as ordinary ``nn.Module`` classes.

Each one is made of stock layers, so ``model.to(dtype)`` is all it takes to run it in
another format. The sources of the shapes are named at the classes.
"""

import torch
from torch import nn

MODELS = ("lenet5", "cifarnet", "alexnet", "resnet18")


class LeNet5(nn.Module):
    """LeNet-5 in the form used in studies of training with posits.

    Three 5x5 convolutions (6, 16 and 120 channels), each followed by tanh, 2x2 average
    pooling after the first two, a linear layer of 84 with tanh, a linear output layer.
    It differs from the 1998 network in the places where nearly every later copy does:
    the second convolution sees all six maps, pooling has no weights, and the output is
    linear (for softmax cross-entropy) and not a radial basis function.

    Args:
        in_channels: channels of the input images, at least 1.
        num_classes: outputs, at least 1.

    Input ``(N, in_channels, 32, 32)``, output ``(N, num_classes)`` logits. One channel
    and ten classes make 61,706 parameters.

    Sources: LeCun, Bottou, Bengio and Haffner, "Gradient-based learning applied to
    document recognition", Proc. IEEE 86 (1998), section II.B; Raposo, Tomas and Roma,
    "PositNN", ICASSP 2021, for its use with posits.
    """

    def __init__(self, in_channels=1, num_classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, 6, 5), nn.Tanh(), nn.AvgPool2d(2),  # 32 -> 28 -> 14
            nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2),  # 14 -> 10 -> 5
            nn.Conv2d(16, 120, 5), nn.Tanh(),  # 5 -> 1
        )  # fmt: skip
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, num_classes))

    def forward(self, x):
        return self.classifier(self.features(x))


class CifarNet(nn.Module):
    """The small CIFAR-10 network that comes with cuda-convnet and Caffe.

    Three padded 5x5 convolutions (32, 32 and 64 channels); 3x3 pooling with stride 2
    after each (a maximum before the first ReLU, averages after the other two); a linear
    layer of 64 and the output layer with nothing between them, as in the source.

    Args:
        in_channels: channels of the input images, at least 1.
        num_classes: outputs, at least 1.

    Input ``(N, in_channels, 32, 32)``, output ``(N, num_classes)`` logits. Three
    channels and ten classes make 145,578 parameters.

    Source: Krizhevsky's cuda-convnet (2012), distributed with Caffe as
    ``examples/cifar10/cifar10_quick``. Its hand-made initial weights and learning rates
    per layer are not part of the shape: PyTorch's default initialisation is used.
    """

    def __init__(self, in_channels=3, num_classes=10):
        super().__init__()
        # ceil_mode: the source rounds pooled sizes up, 32 -> 16 -> 8 -> 4.
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, 32, 5, padding=2), nn.MaxPool2d(3, 2, ceil_mode=True), nn.ReLU(),
            nn.Conv2d(32, 32, 5, padding=2), nn.ReLU(), nn.AvgPool2d(3, 2, ceil_mode=True),
            nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.AvgPool2d(3, 2, ceil_mode=True),
        )  # fmt: skip
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(64 * 4 * 4, 64), nn.Linear(64, num_classes))

    def forward(self, x):
        return self.classifier(self.features(x))


class AlexNet(nn.Module):
    """AlexNet in its one-tower form, for 224x224 images or adapted to 32x32.

    Five convolutions (64, 192, 384, 256 and 256 channels) with ReLU, 3x3 max pooling
    with stride 2 after the first, second and fifth, then dropout and linear layers of
    4096, 4096 and ``num_classes``. At 32x32 the first convolution is 5x5 with stride 1
    in place of 11x11 with stride 4, which leaves 3x3 maps (not 6x6) for the classifier;
    all else is the same.

    Args:
        in_channels: channels of the input images, at least 1.
        num_classes: outputs, at least 1.
        image_size: side of the input images, 32 or 224.

    Input ``(N, in_channels, image_size, image_size)``, output ``(N, num_classes)``
    logits. Three channels and ten classes make 57,044,810 parameters at 224 and
    28,714,826 at 32. Dropout draws from torch's default generator.

    Source: Krizhevsky, "One weird trick for parallelizing convolutional neural
    networks", arXiv:1404.5997 (2014), which simplifies Krizhevsky, Sutskever and Hinton
    (2012).

    Raises:
        ValueError: for another ``image_size``.
    """

    def __init__(self, in_channels=3, num_classes=10, image_size=32):
        super().__init__()
        if image_size == 224:
            stem, side = nn.Conv2d(in_channels, 64, 11, stride=4, padding=2), 6
        elif image_size == 32:
            stem, side = nn.Conv2d(in_channels, 64, 5, padding=2), 3
        else:
            raise ValueError(f"expected image_size 32 or 224 for alexnet, but got {image_size}")
        self.features = nn.Sequential(
            stem, nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(),
            nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2),
        )  # fmt: skip
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(), nn.Linear(256 * side * side, 4096), nn.ReLU(),
            nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(),
            nn.Linear(4096, num_classes),
        )  # fmt: skip

    def forward(self, x):
        return self.classifier(self.features(x))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch norm, and the input added before the last ReLU.

    Where the block changes the shape, a 1x1 convolution with batch norm (option B of
    the paper) brings the input to the same shape.
    """

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut.append(nn.Conv2d(inputs, outputs, 1, stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(outputs))

    def forward(self, x):
        return torch.relu(self.residual(x) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 for 32x32 images: a 3x3 first convolution and no max pooling.

    Four stages of two residual blocks with 64, 128, 256 and 512 channels; each stage
    but the first halves the side (32, 16, 8, 4); then the mean over each map and one
    linear layer. Convolutions start from He's normal distribution.

    Args:
        in_channels: channels of the input images, at least 1.
        num_classes: outputs, at least 1.

    Input ``(N, in_channels, 32, 32)``, output ``(N, num_classes)`` logits. Three
    channels and ten classes make 11,173,962 parameters.

    Source: He, Zhang, Ren and Sun, "Deep residual learning for image recognition",
    arXiv:1512.03385 (2015), table 1 with the first layers of section 4.2.
    """

    def __init__(self, in_channels=3, num_classes=10):
        super().__init__()
        layers = [nn.Conv2d(in_channels, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
        inputs = 64
        for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            layers += [ResidualBlock(inputs, outputs, stride), ResidualBlock(outputs, outputs, 1)]
            inputs = outputs
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(512, num_classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def build_model(name, in_channels, num_classes=10, image_size=32):
    """The network called ``name``, freshly initialised from torch's default generator.

    Args:
        name: one of ``MODELS``.
        in_channels: channels of the input images, at least 1.
        num_classes: outputs, at least 1.
        image_size: side of the input images: 32, or 224 for ``alexnet``.

    Returns:
        An ``nn.Module`` in the default dtype on the CPU that maps
        ``(N, in_channels, image_size, image_size)`` to ``(N, num_classes)`` logits.
        ``alexnet`` at 224 with three channels is torchvision's class where torchvision
        is installed; the same layers in the same order, so the same seed gives the same
        weights, without it.

    Raises:
        ValueError: for an unknown name or an image size that the network cannot take.
    """
    if name not in MODELS:
        raise ValueError(f"expected a model out of {', '.join(MODELS)}, but got {name!r}")
    if name == "alexnet":
        if image_size == 224 and in_channels == 3:
            try:
                from torchvision.models import alexnet
            except (ImportError, RuntimeError):  # the latter: one that was built for another PyTorch
                pass
            else:
                return alexnet(weights=None, num_classes=num_classes)
        return AlexNet(in_channels, num_classes, image_size)
    if image_size != 32:
        raise ValueError(f"expected image_size 32 for {name}, but got {image_size}; only alexnet takes 224")
    network = {"lenet5": LeNet5, "cifarnet": CifarNet, "resnet18": ResNet18}[name]
    return network(in_channels, num_classes)
