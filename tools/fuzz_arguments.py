"""Random arguments for tools/fuzz.py: tensors of every format, layout and value, and all others."""

import math
import random

import numpy
import torch

import torch_dtypes

RUN_TIME = (
    "posit2es0 posit6es1 posit24es2 posit32es4 e2m1finite e4m3fn_saturate e4m3fnuz binary8p3se "
    "e5m10 e8m23_flush e11m30 e11m52 fixed8_8 fixed12_12 ufixed4_4 q43_stochastic "
    "posit16es2_stochastic e5m7_stochastic_equal posit32es2_toward_zero e11m30_up"
).split()
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
CONTAINER = {1: torch.float8_e5m2fnuz, 2: torch.bfloat16, 4: torch.float32, 8: torch.float64}
STOCK_FLOATS = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.float8_e5m2fnuz,
    torch.float8_e4m3fn,
)
STOCK = (*STOCK_FLOATS, torch.int64, torch.bool, torch.int32, torch.uint8, torch.complex64)
WILD_INTEGERS = (1000, 2**31, 2**40, 2**62, 2**63 - 1, -(2**31), -(2**63))
# Numbers of dtypes that PyTorch's Python layer passes on unread: undefined, of formats, and unused.
DTYPE_NUMBERS = (
    -129,
    -1,
    22,
    45,
    46,
    47,
    63,
    64,
    70,
    75,
    76,
    100,
    126,
    127,
    128,
    200,
    255,
    256,
    320,
    2**40,
)
STRINGS = (
    "mean",
    "sum",
    "none",
    "",
    "amax",
    "prod",
    "trunc",
    "floor",
    "linear",
    "reflect",
    "ij",
    "L",
    "i,i",
    "...i->...",
    "fro",
    "nuc",
    "tanh",
)
MEMORY_FORMATS = (
    torch.contiguous_format,
    torch.channels_last,
    torch.channels_last_3d,
    torch.preserve_format,
)


def formats() -> list[torch.dtype]:
    """Return the dtypes of operands, made before the children so that all have the same."""
    return [*torch_dtypes.builtin_dtypes(), *map(torch_dtypes.dtype, RUN_TIME)]


class Arguments:
    """Arguments of one call, drawn from its own generator.

    In another world, `instead` replaces each format dtype, and with `uniform` each stock floating
    dtype too. Nothing else changes, so that a call can be repeated with stock tensors of the same
    sizes, strides and values.
    """

    def __init__(
        self,
        rng: random.Random,
        dtypes: list[torch.dtype],
        instead: torch.dtype | None = None,
        uniform: bool = False,
    ):
        self.rng, self.dtypes, self.instead, self.uniform = rng, dtypes, instead, uniform
        self.primary = rng.choice(dtypes)
        self.operands: list[torch.Tensor] = []
        self.dtypes_named: list[object] = []  # dtypes among the arguments
        count = rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5))
        self.shape = (
            [self.size()] * count if self.chance(0.35) else [self.size() for _ in range(count)]
        )

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def size(self) -> int:
        return self.rng.choice(
            (1, 1, 2, 2, 2, 3, 3, 4, 5, 7) if self.chance(0.94) else (0, 0, 17, 64)
        )

    # ---- dtypes ----

    def world(self, dtype: torch.dtype) -> torch.dtype:
        replaced = torch_dtypes.is_format_dtype(dtype) or (self.uniform and dtype in STOCK_FLOATS)
        return self.instead if self.instead is not None and replaced else dtype

    def dtype(self) -> object:
        kind = self.rng.random()
        if kind < 0.4:
            dtype = self.world(self.primary)
        else:
            dtype = self.world(self.rng.choice(self.dtypes if kind < 0.6 else STOCK))
        if kind > 0.9:
            dtype = self.rng.choice(DTYPE_NUMBERS)
        self.dtypes_named.append(dtype)
        return dtype

    # ---- tensors ----

    def near(self) -> list[int]:
        """Return a shape that fits the call's own, or nearly."""
        shape, kind = list(self.shape), self.rng.random()
        if kind < 0.7 or not shape:
            return shape if kind < 0.9 else [self.size()]
        at = self.rng.randrange(len(shape))
        if kind < 0.78:
            shape[at] = 1
        elif kind < 0.83:
            shape = shape[at:]
        elif kind < 0.88:
            shape = [shape[at]]
        elif kind < 0.91:
            shape.reverse()
        elif kind < 0.94:
            shape.insert(at, self.size())
        else:
            shape = [self.size() for _ in range(self.rng.randrange(5))]
        return shape

    def values(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Return elements: random codes, simple numbers or the edges of the range."""
        source, kind = numpy.random.default_rng(self.rng.getrandbits(32)), self.rng.random()
        if not torch_dtypes.is_format_dtype(dtype):
            if dtype.is_floating_point or dtype.is_complex:
                edges = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, math.inf, math.nan, 1e38, 1e-45]
                return torch.from_numpy(
                    source.normal(size=count) if kind < 0.6 else source.choice(edges, count)
                ).to(self.world(dtype))
            low, high = (0, 3) if kind < 0.8 else (-5, 70)
            if dtype is torch.bool:
                low, high = 0, 2
            return torch.from_numpy(source.integers(low, high, count)).to(dtype)
        if kind < 0.35:
            bits = torch_dtypes.format_of(dtype).bits
            codes = (
                source.integers(0, 2 ** min(bits, 63), count, dtype=numpy.uint64)
                if kind < 0.3
                else source.integers(-128, 128, count)
            )
            t = torch.from_numpy(codes.astype(numpy.int64)).to(BITS[dtype.itemsize]).view(dtype)
        elif kind < 0.75:
            t = torch.from_numpy(source.normal(size=count)).to(dtype)
        else:
            info = torch.finfo(dtype)
            edges = [
                0.0,
                -0.0,
                1.0,
                -1.0,
                0.5,
                2.0,
                3.0,
                math.inf,
                -math.inf,
                math.nan,
                info.max,
                info.min,
                info.tiny,
                info.eps,
                -info.tiny,
            ]
            t = torch.tensor(source.choice(edges, count), dtype=torch.float64).to(dtype)
        return t if self.instead is None else t.double().to(self.instead)

    def lay_out(self, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor of this shape, its elements placed within more memory."""
        while math.prod(shape) > 4096:
            shape = shape[1:]
        order = list(range(len(shape)))
        layout = self.rng.choice(
            (
                "plain",
                "plain",
                "plain",
                "permuted",
                "offset",
                "gaps",
                "expanded",
                "overlapping",
                "channels_last",
            )
        )
        if layout == "permuted":
            self.rng.shuffle(order)
        if layout == "channels_last" and len(shape) >= 3:
            order = [0, *range(2, len(shape)), 1]
        step, offset = (
            (self.rng.randint(2, 3) if layout == "gaps" else 1),
            (self.rng.randint(1, 9) if layout == "offset" else 0),
        )
        strides = [0] * len(shape)
        for at in reversed(order):
            strides[at] = step
            step *= max(shape[at], 1)
        if layout == "expanded" and shape:
            strides[self.rng.randrange(len(shape))] = 0
        if layout == "overlapping":
            strides = [self.rng.randint(0, 2) for _ in shape]
        extent = (
            offset
            + 1
            + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
            if all(shape)
            else offset
        )
        return self.values(extent, dtype).as_strided(shape, strides, offset)

    def index_like(self, name: str) -> torch.Tensor:
        if "mask" in name or name == "condition":
            return self.lay_out(self.near(), torch.bool)
        dtype = torch.int32 if self.chance(0.1) else torch.int64
        return self.lay_out(self.near(), dtype)

    def tensor(self, name: str = "", written: bool = False) -> torch.Tensor:
        kind = self.rng.random()
        if (
            any(
                word in name
                for word in (
                    "indices",
                    "index",
                    "offsets",
                    "mask",
                    "condition",
                    "lengths",
                    "sizes",
                    "batches",
                )
            )
            and kind < 0.8
        ):
            return self.index_like(name)
        if kind < 0.76:
            dtype = self.primary
        elif kind < 0.82:
            dtype = self.rng.choice(self.dtypes)
        else:
            dtype = self.rng.choice(STOCK)
        if self.operands and self.chance(0.05):
            return self.rng.choice(self.operands)  # the same object twice
        if written and self.chance(0.5):
            t = self.lay_out([0], dtype)
        elif (
            any(word in name for word in ("bias", "running", "mean", "var", "invstd"))
            and len(self.shape) > 1
            and self.chance(0.6)
        ):
            t = self.lay_out([self.shape[1]], dtype)
        else:
            t = self.lay_out(self.near(), dtype)
        if self.chance(0.3) and dtype.is_floating_point and dtype not in STOCK_FLOATS[4:]:
            t = t.detach().requires_grad_()
            t = t * 1 if self.chance(0.3) else t
        special = self.rng.random()
        if special < 0.02:
            t = torch.empty_like(t, device="meta")
        elif special < 0.03:
            t = torch.eye(3).to_sparse()
        elif special < 0.05 and t.is_floating_point():
            t = torch.nn.Parameter(t.detach())
        self.operands.append(t)
        return t

    # ---- everything else ----

    def integer(self, name: str = "") -> int:
        if self.chance(0.04):
            return self.rng.choice(WILD_INTEGERS)
        if "dim" in name or name in ("axis", "start", "end"):
            count = len(self.shape)
            return (
                self.rng.randint(-count - 1, count + 1)
                if self.chance(0.3)
                else self.rng.randint(-1, max(count - 1, 0))
            )
        return self.rng.choice((0, 1, 1, 1, 2, 2, 3, 4, 5, -1))

    def integers(self, name: str = "") -> list[int]:
        if name in (
            "size",
            "sizes",
            "output_size",
            "shape",
            "repeats",
            "input_size",
        ) and self.chance(0.6):
            return (
                self.near()
                if "output" not in name
                else [self.size() for _ in range(self.rng.randint(1, 3))]
            )
        if name in ("stride", "strides") and self.chance(0.3):
            return [self.rng.randint(0, 3) for _ in self.shape]
        if "dim" in name:
            return self.rng.sample(
                range(-len(self.shape), len(self.shape)),
                min(self.rng.randint(0, 2), 2 * len(self.shape)),
            )
        return [
            self.integer() if self.chance(0.3) else self.rng.randint(0, 2)
            for _ in range(self.rng.randrange(5))
        ]

    def real(self) -> float:
        return self.rng.choice(
            (0.0, 0.5, 1.0, 2.0, -1.0, 1e-5, 3.7)
            if self.chance(0.85)
            else (math.nan, math.inf, -math.inf, 1e300, -0.0)
        )

    def number(self) -> object:
        return self.rng.choice((self.real(), self.real(), self.integer(), self.chance(0.5), 1j))

    def of_type(self, kind: str, name: str = "", written: bool = False) -> object:
        """Return an argument of the type that a schema names, as TorchScript writes it."""
        if kind.startswith("Optional["):
            return (
                None
                if self.chance(0.3)
                else self.of_type(kind[len("Optional[") : -1], name, written)
            )
        if kind.startswith("List[") and kind not in ("List[int]",):
            return [
                self.of_type(kind[len("List[") : -1], name, written)
                for _ in range(self.rng.choice((0, 1, 2, 2, 3)))
            ]
        if kind == "Tensor":
            return None if self.chance(0.01) else self.tensor(name, written)
        if kind == "Storage":
            return self.tensor().untyped_storage()
        simple = {
            "int": lambda: self.integer(name),
            "List[int]": lambda: self.integers(name),
            "float": self.real,
            "number": self.number,
            "bool": lambda: self.chance(0.5),
            "str": lambda: self.rng.choice(STRINGS),
            "complex": lambda: complex(self.real(), self.real()),
            "ScalarType": self.dtype,
            "MemoryFormat": lambda: self.rng.choice(MEMORY_FORMATS),
            "Layout": lambda: self.rng.choice(
                (torch.strided, torch.strided, torch.sparse_coo, torch.sparse_csr)
            ),
            "Device": lambda: torch.device(self.rng.choice(("cpu", "cpu", "cpu", "meta"))),
            "Generator": lambda: torch.default_generator,
        }
        return simple[kind]() if kind in simple else None
