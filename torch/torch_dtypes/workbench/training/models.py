"""Networks for images that the number-format literature trains, as ordinary ``nn.Module`` classes.

Each consists of stock layers, so ``model.to(dtype)`` suffices to run it in another format. The
classes name the sources of the shapes.
"""

import torch
from torch import nn


class LeNet5(nn.Module):
    """LeNet-5 as in studies of training with posits: 61,706 parameters for one channel and ten
    classes.

    Like nearly every later copy it differs from the 1998 network. The second convolution sees all
    six maps, pooling has no weights, and the output is linear (for softmax cross-entropy). As for
    all networks here, the input is ``(N, in_channels, 32, 32)`` and the output ``(N, num_classes)``
    logits.

    Sources: LeCun, Bottou, Bengio and Haffner, "Gradient-based learning applied to document
    recognition", Proc. IEEE 86 (1998), section II.B; Raposo, Tomas and Roma, "PositNN", ICASSP
    2021, for its use with posits.
    """

    def __init__(self, in_channels=1, num_classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, 6, 5),
            nn.Tanh(),
            nn.AvgPool2d(2),  # 32 -> 28 -> 14
            nn.Conv2d(6, 16, 5),
            nn.Tanh(),
            nn.AvgPool2d(2),  # 14 -> 10 -> 5
            nn.Conv2d(16, 120, 5),
            nn.Tanh(),  # 5 -> 1
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, num_classes)
        )

    def forward(self, x):
        return self.classifier(self.features(x))


class CifarNet(nn.Module):
    """The small CIFAR-10 network of cuda-convnet and Caffe: 145,578 parameters for three channels
    and ten classes.

    As in the source, its last two linear layers have nothing between them. Initial weights are
    PyTorch's.

    Source: Krizhevsky's cuda-convnet (2012), distributed with Caffe as
    ``examples/cifar10/cifar10_quick``.
    """

    def __init__(self, in_channels=3, num_classes=10):
        super().__init__()
        # ceil_mode: the source rounds pooled sizes up, 32 -> 16 -> 8 -> 4.
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, 32, 5, padding=2),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            nn.ReLU(),
            nn.Conv2d(32, 32, 5, padding=2),
            nn.ReLU(),
            nn.AvgPool2d(3, 2, ceil_mode=True),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.ReLU(),
            nn.AvgPool2d(3, 2, ceil_mode=True),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(64 * 4 * 4, 64), nn.Linear(64, num_classes)
        )

    def forward(self, x):
        return self.classifier(self.features(x))


class AlexNet(nn.Module):
    """AlexNet in its one-tower form, adapted to 32x32 images: 28,714,826 parameters for three
    channels and ten classes.

    The first convolution is 5x5 with stride 1 instead of 11x11 with stride 4, which leaves 3x3 maps
    (not 6x6) for the classifier.

    Source: Krizhevsky, "One weird trick for parallelizing convolutional neural networks",
    arXiv:1404.5997 (2014).
    """

    def __init__(self, in_channels=3, num_classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, 64, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(3, 2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(),
            nn.Linear(256 * 3 * 3, 4096),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(),
            nn.Linear(4096, num_classes),
        )

    def forward(self, x):
        return self.classifier(self.features(x))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch norm. The input is added before the last ReLU, through a 1x1
    convolution (option B of the paper) if shapes differ."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut.append(nn.Conv2d(inputs, outputs, 1, stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(outputs))

    def forward(self, x):
        return torch.relu(self.residual(x) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 for 32x32 images: 11,173,962 parameters for three channels and ten classes.

    It has a 3x3 first convolution and no max pooling. Convolutions start from He's normal
    distribution.

    Source: He, Zhang, Ren and Sun, "Deep residual learning for image recognition", arXiv:1512.03385
    (2015), table 1 with the first layers of section 4.2.
    """

    def __init__(self, in_channels=3, num_classes=10):
        super().__init__()
        layers = [
            nn.Conv2d(in_channels, 64, 3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
        ]
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


_CLASSES = {"lenet5": LeNet5, "cifarnet": CifarNet, "alexnet": AlexNet, "resnet18": ResNet18}
MODELS = tuple(_CLASSES)


def build_model(name, in_channels, num_classes=10):
    """Build the network called ``name``, one of ``MODELS``, in the default dtype on the CPU,
    initialised from torch's default generator.

    Raises:
        ValueError: an unknown name.
    """
    if name not in MODELS:
        raise ValueError(f"expected a model out of {', '.join(MODELS)}, but got {name!r}")
    return _CLASSES[name](in_channels, num_classes)
