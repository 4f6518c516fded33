"""Calls of functions that reduce or normalise, at sizes whose plain sums exceed the range of 8-bit
formats."""

import math

import torch
from torch import linalg, masked
from torch.nn import functional as F

CASES: dict[str, tuple] = {}


def case(name: str, function, *inputs: torch.Tensor) -> None:
    assert name not in CASES, name
    CASES[name] = function, inputs


def fix(values: torch.Tensor) -> torch.Tensor:
    """Mark an operand as having no gradient."""
    values.is_fixed = True
    return values


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 1, mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64) * std + mean


def uniform(*shape: int, seed: int = 2, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
    return torch.rand(*shape, generator=generator(seed), dtype=torch.float64) * (high - low) + low


def classes(*shape: int, seed: int = 3, count: int = 10) -> torch.Tensor:
    return torch.randint(count, shape, generator=generator(seed))


def signs(*shape: int) -> torch.Tensor:
    return fix(classes(*shape, count=2) * 2.0 - 1)


def choose(*shape: int) -> torch.Tensor:
    return uniform(*shape, seed=4) < 0.8


N, C = 200, 10
LOGITS, TARGETS, WEIGHT = normal(N, C), classes(N), fix(uniform(C, low=0.5, high=2))
PROBABILITIES, LOGARITHMS = normal(N, C, seed=5).softmax(1), normal(N, C, seed=6).log_softmax(1)
A, B, POSITIVE = normal(N, C, seed=7), normal(N, C, seed=8), uniform(N, C, low=0.2, high=2)
LONG, MATRIX, ROWS = (
    normal(1000, mean=1.8, std=0.6),
    normal(16, 40, mean=1),
    normal(4, 600, mean=0.1, std=0.25),
)
IMAGES, SEQUENCES, VOLUMES = (
    normal(2, 3, 18, 18, mean=1),
    normal(2, 8, 300, mean=1.5),
    normal(1, 2, 10, 10, 10, mean=1),
)

# ---- losses, by each reduction ----

for r in ("mean", "sum", "none"):
    case(f"cross_entropy, {r}", lambda x, r=r: F.cross_entropy(x, TARGETS, reduction=r), LOGITS)
    case(
        f"cross_entropy weight, {r}",
        lambda x, w, r=r: F.cross_entropy(x, TARGETS, w, reduction=r),
        LOGITS,
        WEIGHT,
    )
    case(
        f"cross_entropy label_smoothing, {r}",
        lambda x, r=r: F.cross_entropy(x, TARGETS, label_smoothing=0.1, reduction=r),
        LOGITS,
    )
    case(
        f"cross_entropy label_smoothing weight, {r}",
        lambda x, w, r=r: F.cross_entropy(x, TARGETS, w, label_smoothing=0.1, reduction=r),
        LOGITS,
        WEIGHT,
    )
    case(
        f"cross_entropy probabilities, {r}",
        lambda x, p, r=r: F.cross_entropy(x, p, reduction=r),
        LOGITS,
        PROBABILITIES,
    )
    case(
        f"cross_entropy probabilities weight, {r}",
        lambda x, p, w, r=r: F.cross_entropy(x, p, w, label_smoothing=0.1, reduction=r),
        LOGITS,
        PROBABILITIES,
        WEIGHT,
    )
    case(
        f"nll_loss, {r}",
        lambda x, w, r=r: F.nll_loss(x, TARGETS, w, reduction=r),
        LOGARITHMS,
        WEIGHT,
    )
    case(
        f"nll_loss images, {r}",
        lambda x, r=r: F.nll_loss(x, classes(2, 18, 18, count=3), reduction=r),
        IMAGES.log_softmax(1),
    )
    case(f"kl_div, {r}", lambda x, p, r=r: F.kl_div(x, p, reduction=r), LOGARITHMS, PROBABILITIES)
    case(
        f"kl_div log_target, {r}",
        lambda x, p, r=r: F.kl_div(x, p, reduction=r, log_target=True),
        LOGARITHMS,
        LOGITS.log_softmax(1),
    )
    case(
        f"poisson_nll_loss, {r}",
        lambda x, y, r=r: F.poisson_nll_loss(x, y, reduction=r),
        A,
        POSITIVE,
    )
    case(
        f"poisson_nll_loss full, {r}",
        lambda x, y, r=r: F.poisson_nll_loss(x, y, False, full=True, reduction=r),
        POSITIVE,
        POSITIVE + 1,
    )
    case(
        f"gaussian_nll_loss, {r}",
        lambda x, y, v, r=r: F.gaussian_nll_loss(x, y, v, full=True, reduction=r),
        A,
        B,
        POSITIVE,
    )
    case(
        f"soft_margin_loss, {r}",
        lambda x, y, r=r: F.soft_margin_loss(x, y, reduction=r),
        A,
        signs(N, C),
    )
    case(
        f"hinge_embedding_loss, {r}",
        lambda x, y, r=r: F.hinge_embedding_loss(x, y, reduction=r),
        POSITIVE,
        signs(N, C),
    )
    case(
        f"margin_ranking_loss, {r}",
        lambda x, y, t, r=r: F.margin_ranking_loss(x, y, t, 0.5, reduction=r),
        A,
        B,
        signs(N, C),
    )
    case(
        f"multi_margin_loss, {r}",
        lambda x, w, r=r: F.multi_margin_loss(x, TARGETS, 2, weight=w, reduction=r),
        LOGITS,
        WEIGHT,
    )
    case(
        f"multilabel_margin_loss, {r}",
        lambda x, r=r: F.multilabel_margin_loss(x, classes(N, C), reduction=r),
        LOGITS,
    )
    case(
        f"multilabel_soft_margin_loss, {r}",
        lambda x, y, w, r=r: F.multilabel_soft_margin_loss(x, y, w, reduction=r),
        A,
        PROBABILITIES,
        WEIGHT,
    )
    case(
        f"binary_cross_entropy, {r}",
        lambda x, y, w, r=r: F.binary_cross_entropy(x, y, w, reduction=r),
        A.sigmoid(),
        PROBABILITIES,
        WEIGHT,
    )
    case(
        f"binary_cross_entropy_with_logits, {r}",
        lambda x, y, r=r: F.binary_cross_entropy_with_logits(x, y, reduction=r),
        A,
        PROBABILITIES,
    )
    case(
        f"binary_cross_entropy_with_logits weights, {r}",
        lambda x, y, w, r=r: F.binary_cross_entropy_with_logits(x, y, w, reduction=r, pos_weight=w),
        A,
        fix(PROBABILITIES.clone()),
        WEIGHT,
    )
    case(
        f"cosine_embedding_loss, {r}",
        lambda x, y, t, r=r: F.cosine_embedding_loss(x, y, t, 0.1, reduction=r),
        ROWS,
        ROWS.flip(0) + 0.1,
        signs(4),
    )
    case(
        f"cosine_embedding_loss alike, {r}",
        lambda x, y, r=r: F.cosine_embedding_loss(x, y, torch.ones(4), reduction=r),
        normal(4, 512),
        normal(4, 512) + normal(4, 512, seed=2, std=0.1),
    )
    triplets = (
        normal(8, 300, seed=9, std=0.5),
        normal(8, 300, seed=10, std=0.5),
        normal(8, 300, seed=11, std=0.5),
    )
    case(
        f"triplet_margin_loss, {r}",
        lambda x, y, z, r=r: F.triplet_margin_loss(x, y, z, swap=True, reduction=r),
        *triplets,
    )
    case(
        f"triplet_margin_with_distance_loss, {r}",
        lambda x, y, z, r=r: F.triplet_margin_with_distance_loss(x, y, z, reduction=r),
        *triplets,
    )
    case(
        f"ctc_loss, {r}",
        lambda x, r=r: F.ctc_loss(x, 1 + classes(4, 6, count=8), [40] * 4, [6] * 4, reduction=r),
        normal(40, 4, 10).log_softmax(2),
    )
    for loss in (F.l1_loss, F.mse_loss, F.smooth_l1_loss, F.huber_loss):
        case(f"{loss.__name__}, {r}", lambda x, y, r=r, loss=loss: loss(x, y, reduction=r), A, B)
        if loss is not F.smooth_l1_loss:
            case(
                f"{loss.__name__} weight, {r}",
                lambda x, y, w, r=r, loss=loss: loss(x, y, reduction=r, weight=w),
                A,
                B,
                POSITIVE,
            )
case(
    "kl_div, batchmean",
    lambda x, p: F.kl_div(x, p, reduction="batchmean"),
    LOGARITHMS,
    PROBABILITIES,
)
case(
    "linear_cross_entropy",
    lambda x, w: F.linear_cross_entropy(x, w, TARGETS),
    normal(N, 32, std=0.5),
    normal(C, 32, std=0.5),
)

# ---- statistics and integrals ----

for f in (
    torch.mean,
    torch.nanmean,
    torch.sum,
    torch.nansum,
    torch.var,
    torch.std,
    torch.var_mean,
    torch.std_mean,
):
    case(f.__name__, lambda x, f=f: f(x, 0), LONG)
    case(f"{f.__name__} of all", lambda x, f=f: f(x), MATRIX)
for f in (
    torch.median,
    torch.nanmedian,
    torch.cov,
    torch.trapezoid,
    torch.trapz,
    torch.cumulative_trapezoid,
):
    case(f"{f.__name__}", lambda x, f=f: f(x), LONG * 0.25)
for f in (
    torch.softmax,
    torch.log_softmax,
    torch.logsumexp,
    torch.logcumsumexp,
    torch.cumsum,
    F.softmin,
    torch.special.softmax,
):
    case(f.__name__, lambda x, f=f: f(x, 0), LONG)
case("special.logsumexp", lambda x: torch.special.logsumexp(x, 0), LONG)
case("special.log_softmax", lambda x: torch.special.log_softmax(x, 0), LONG)
case(
    "cov weights",
    lambda x, w: torch.cov(x, fweights=classes(600) + 1, aweights=w),
    ROWS,
    uniform(600, low=0.5, high=1.5),
)
case("corrcoef", lambda x: torch.corrcoef(x), normal(3, 900, mean=1, std=0.8) + normal(900, seed=2))
for f in (torch.trapezoid, torch.trapz, torch.cumulative_trapezoid):
    case(f"{f.__name__} of places", lambda y, x, f=f: f(y, x), LONG, normal(1000, seed=2, std=2))
case("gradient", lambda x: torch.gradient(x, spacing=2.0)[0], normal(1000, std=4))
case("quantile", lambda x: torch.quantile(x, 0.3), LONG)
case("nanquantile", lambda x: torch.nanquantile(x, 0.3), LONG)
case("prod", lambda x: torch.prod(x), uniform(60, low=0.5, high=2))
case("cumprod", lambda x: torch.cumprod(x, 0), uniform(60, low=0.5, high=2))
case("trace", lambda x: torch.trace(x), normal(64, 64))
case("dot", lambda x, y: torch.dot(x, y), LONG, normal(1000))
case("vecdot", lambda x, y: linalg.vecdot(x, y), ROWS, ROWS.flip(0))
case(
    "scatter_reduce",
    lambda x: x.new_zeros(3).scatter_reduce(0, classes(1000, count=3), x, "mean"),
    LONG,
)
case(
    "index_reduce",
    lambda x: x.new_zeros(3).index_reduce(0, classes(1000, count=3), x, "mean"),
    LONG,
)
case(
    "segment_reduce",
    lambda x: torch.segment_reduce(x, "mean", lengths=torch.tensor([600, 400])),
    LONG,
)
case(
    "embedding_bag",
    lambda w: F.embedding_bag(classes(3, 200, count=50), w, mode="mean"),
    normal(50, 8, mean=1),
)
case(
    "bilinear",
    lambda x, y, w: F.bilinear(x, y, w),
    normal(8, 30),
    normal(8, 30, seed=2),
    normal(4, 30, 30, std=0.1),
)

# ---- distances and norms ----

for p in (0.5, 1.0, 2.0, 3.0, math.inf):
    case(f"vector_norm {p}", lambda x, p=p: linalg.vector_norm(x, p, 1), ROWS)
    case(f"norm {p}", lambda x, p=p: torch.norm(x, p, 1), ROWS)
    case(f"normalize {p}", lambda x, p=p: F.normalize(x, p, 1), ROWS)
    case(
        f"pairwise_distance {p}", lambda x, y, p=p: F.pairwise_distance(x, y, p), ROWS, ROWS.flip(0)
    )
    case(f"dist {p}", lambda x, y, p=p: torch.dist(x, y, p), ROWS[0], ROWS[1])
    case(f"cdist {p}", lambda x, y, p=p: torch.cdist(x, y, p), ROWS, ROWS.flip(0) + 0.1)
    case(f"pdist {p}", lambda x, p=p: F.pdist(x, p), ROWS)
for p in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
    case(f"matrix_norm {p}", lambda x, p=p: linalg.matrix_norm(x, p), normal(2, 12, 16, std=0.5))
    case(f"cond {p}", lambda x, p=p: linalg.cond(x, p), fix(normal(6, 6) + 2 * torch.eye(6)))
case("linalg.norm", lambda x: linalg.norm(x), ROWS)
case("linalg.det", lambda x: linalg.det(x), normal(8, 8, std=0.6))
case("slogdet", lambda x: torch.slogdet(x)[1], normal(8, 8, std=0.6))
case("renorm", lambda x: torch.renorm(x, 2, 0, 1.0), ROWS)
case("cosine_similarity", lambda x, y: F.cosine_similarity(x, y), ROWS, ROWS.flip(0) + 0.1)
case(
    "multi_dot",
    lambda x, y, z: linalg.multi_dot([x, y, z]),
    normal(4, 400),
    normal(400, 30),
    normal(30, 5, std=0.02),
)
case("matrix_power", lambda x: linalg.matrix_power(x, 5), normal(20, 20, std=0.2))

# ---- pooling, interpolation, normalisation ----

case("avg_pool1d", lambda x: F.avg_pool1d(x, 200), SEQUENCES)
case("avg_pool2d", lambda x: F.avg_pool2d(x, 6), IMAGES)
case("avg_pool3d", lambda x: F.avg_pool3d(x, 5), VOLUMES)
case("adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 1), SEQUENCES)
case("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 1), IMAGES)
case("adaptive_avg_pool2d, 5", lambda x: F.adaptive_avg_pool2d(x, 5), IMAGES)
case("adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, 1), VOLUMES)
case("lp_pool1d", lambda x: F.lp_pool1d(x, 2, 100), SEQUENCES.abs())
case("lp_pool2d", lambda x: F.lp_pool2d(x, 3, 6), IMAGES.abs())
case("lp_pool3d", lambda x: F.lp_pool3d(x, 2, 5), VOLUMES.abs())
for mode in ("nearest", "bilinear", "bicubic", "area"):
    case(
        f"interpolate {mode}",
        lambda x, mode=mode: F.interpolate(x, size=(9, 36), mode=mode),
        IMAGES * 2,
    )
case("interpolate linear", lambda x: F.interpolate(x, size=75, mode="linear"), SEQUENCES)
case("interpolate trilinear", lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), VOLUMES)
case(
    "interpolate antialias",
    lambda x: F.interpolate(x, size=(5, 7), mode="bilinear", antialias=True),
    IMAGES,
)
case(
    "grid_sample",
    lambda x, g: F.grid_sample(x, g, align_corners=False),
    IMAGES,
    uniform(2, 6, 6, 2, low=-1),
)
SCALE, SHIFT = uniform(8, low=0.5, high=1.5), normal(8)
case(
    "batch_norm",
    lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
    SEQUENCES * 2,
    SCALE,
    SHIFT,
)
case(
    "instance_norm",
    lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
    SEQUENCES * 2,
    SCALE,
    SHIFT,
)
case("group_norm", lambda x, w, b: F.group_norm(x, 4, w, b), SEQUENCES * 2, SCALE, SHIFT)
case("layer_norm", lambda x, w, b: F.layer_norm(x, (8,), w, b), SEQUENCES.mT * 2, SCALE, SHIFT)
case("rms_norm", lambda x, w: F.rms_norm(x, (8,), w), SEQUENCES.mT * 2, SCALE)
case("local_response_norm", lambda x: F.local_response_norm(x, 5, alpha=0.1), SEQUENCES * 2)
case("weight_norm", lambda v, g: torch._weight_norm(v, g, 0), ROWS, uniform(4, 1))

# ---- masked: the result does not depend on masked elements ----

for f in (masked.sum, masked.mean, masked.median, masked.var, masked.std, masked.logsumexp):
    case(f"masked.{f.__name__}", lambda x, f=f: f(x, 0, mask=choose(1000)), LONG)
    case(f"masked.{f.__name__} of rows", lambda x, f=f: f(x, 1, mask=choose(16, 40)), MATRIX)
for f in (masked.softmax, masked.log_softmax, masked.softmin, masked.cumsum):
    case(f"masked.{f.__name__}", lambda x, f=f: f(x, 0, mask=choose(1000))[choose(1000)], LONG)
for f in (masked.prod, masked.cumprod):
    case(
        f"masked.{f.__name__}",
        lambda x, f=f: f(x, 0, mask=choose(60)),
        uniform(60, low=0.5, high=1.9),
    )
case("masked.norm", lambda x: masked.norm(x, 3, 1, mask=choose(4, 600)), ROWS)
case("masked.normalize", lambda x: masked.normalize(x, 2.0, 1, mask=choose(4, 600)), ROWS)

# Functions that need more than one rounding, with the reason.
EXCEPTIONS = {
    "cross_entropy": (
        "of class indices without smoothing: the logarithms of probabilities are rounded, as "
        "log_softmax's results are"
    ),
    "linear_cross_entropy": "it is F.linear and F.cross_entropy, whose results are rounded each",
    "multi_dot": (
        "products of matrices are rounded one by one, each added up by the accumulation policy"
    ),
    "matrix_power": "the same",
}
