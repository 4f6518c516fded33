"""For several processes: gradients in a number format, and equal random words on all ranks."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import torch
import torch.distributed as dist

from .formats.code_types import compute_type
from .formats.codes import codes, from_codes
from .formats.dtypes import dtype as dtype_of_name
from .targets.lookup import target

__all__ = ["CompressionState", "compress_hook", "same_random"]


class CompressionState:
    """Format in which ``compress_hook`` sends gradients, and the residuals that it keeps.

    Args:
        dtype: the format dtype in which gradients are sent, or its name.
        error_feedback: True adds the rounding error of a rank's gradients to its next ones. The
            residuals take as much memory as the gradients in float32 (float64 where one of the two
            dtypes needs it).
        process_group: DistributedDataParallel's, unless it is the default one.

    Raises:
        TypeError: not a format dtype.
        ValueError: a format without negative numbers, which gradients have.
    """

    def __init__(
        self, dtype: torch.dtype | str, *, error_feedback: bool = True, process_group=None
    ) -> None:
        self.dtype = dtype_of_name(dtype)
        if torch.finfo(self.dtype).min >= 0:
            raise ValueError(
                f"expected a signed format for gradients, but got {self.dtype}, which has no "
                "negative numbers; use another, such as torch.q43"
            )
        self.error_feedback, self.process_group = bool(error_feedback), process_group
        self._full_scale = target(self.dtype).full_scale
        self._residuals: dict[tuple[int, ...], torch.Tensor] = {}  # by the parameters of a bucket

    def _residual_of(self, bucket) -> torch.Tensor | None:
        return self._residuals.get(tuple(map(id, bucket.parameters())))

    def _keep(self, bucket, residual: torch.Tensor) -> None:
        """Keep a bucket's residual.

        DistributedDataParallel makes new buckets after the first pass; the residuals of the old
        ones are dropped then.
        """
        key = tuple(map(id, bucket.parameters()))
        if key not in self._residuals:
            own = set(key)
            self._residuals = {
                other: kept for other, kept in self._residuals.items() if own.isdisjoint(other)
            }
        self._residuals[key] = residual

    def _scale(self, values: torch.Tensor) -> float:
        """Return the power of two that brings the largest magnitude to the format's full scale, or
        below.

        A posit's full scale is the end of its finest range.
        """
        largest = values.abs().max().item() if values.numel() else 0.0
        if not 0 < largest < math.inf:
            return 1.0
        return math.ldexp(
            1.0, max(-126, min(126, math.floor(math.log2(self._full_scale / largest))))
        )


# No annotations of torch's classes: PyTorch compares annotations, which are texts here, with them.
def compress_hook(state: CompressionState, bucket):
    """Send gradients in a number format, whatever the model's dtype, as a communication hook::

        state = torch_dtypes.distributed.CompressionState(torch.q43)
        ddp.register_comm_hook(state, torch_dtypes.distributed.compress_hook)

    Let g_r be the gradients of rank r in a bucket, e_r its residuals (0 at first) and s_r a power
    of two. Each rank sends the codes of c_r = round(s_r (g_r + e_r)) and keeps e_r = g_r + e_r -
    c_r / s_r. All ranks get all codes, and so the same result, the mean of c_r / s_r over the
    ranks. It is added in rank order in float32 (in float64 where one of the two dtypes needs it)
    and rounded once to the model's dtype. s_r brings the largest magnitude of g_r + e_r to the
    format's largest number, or to less than a factor of two below. For posits it brings it to the
    end of their finest range.

    An infinity or NaN among the gradients is sent as the format's code for it, and the bucket's
    residuals become 0. A rank sends and receives n codes for each other rank, where all_reduce
    moves about 8n bytes of float32. Codes of 8 bits are less up to 8 ranks, codes of 16 bits up to
    4.

    Source: Karimireddy et al., "Error feedback fixes SignSGD and other gradient compression
    schemes" (arXiv 1901.09847), algorithm 2.
    """
    group = state.process_group or dist.group.WORLD
    buffer = bucket.buffer()
    wide = compute_type(buffer.dtype, state.dtype)
    values = buffer.to(wide)
    if state.error_feedback and (residual := state._residual_of(bucket)) is not None:
        values = values + residual
    scale = state._scale(values)
    rounded = (values * scale).to(state.dtype)
    if state.error_feedback:
        left = values - rounded.to(wide) / scale
        state._keep(bucket, left if bool(left.isfinite().all()) else torch.zeros_like(left))
    bits = codes(rounded)
    sent = torch.cat(
        [
            torch.tensor([scale], dtype=torch.float64, device=bits.device).view(torch.uint8),
            bits.view(torch.uint8),
        ]
    )
    everyone = [torch.empty_like(sent) for _ in range(group.size())]

    def mean(_) -> torch.Tensor:
        total = torch.zeros_like(values)
        for got in everyone:
            their_scale = got[:8].clone().view(torch.float64).item()
            total += (
                from_codes(got[8:].clone().view(bits.dtype), state.dtype).to(wide) / their_scale
            )
        total /= len(everyone)
        return total.to(buffer.dtype)

    return dist.all_gather(everyone, sent, group=group, async_op=True).get_future().then(mean)


@contextlib.contextmanager
def same_random(group: dist.ProcessGroup | None = None) -> Iterator[None]:
    """Give all ranks of a group the same random words in a block::

        loss.backward()
        with torch_dtypes.distributed.same_random():
            optimizer.step()

    The words are those of torch's CPU generator and the current GPU's. After the block each rank
    continues its own.

    Replicas must round their states alike, or the copies of a model diverge. This concerns an
    optimizer over parameters of a stochastically rounding dtype, and ``LowPrecision`` with such
    masters or states. Outside the block each rank uses its own generator. Forward and backward
    passes may draw freely: gradients leave ``DistributedDataParallel`` the same on all ranks.

    All ranks enter the block. Each draws one word from its generator, and rank 0 of the group sends
    its own to the others. So equal generators stay equal, and a block may be within another.

    Args:
        group: default: the default process group.
    """
    group = group or dist.group.WORLD
    # The seed has 32 bits, as the generator takes. Every rank draws, so that equal generators stay
    # equal.
    seed = [torch.randint(2**32, (), device="cpu").item()]
    # On the device of the group's back end.
    dist.broadcast_object_list(seed, group=group, group_src=0)
    gpus = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=gpus):
        for generator in (
            torch.default_generator,
            *(torch.cuda.default_generators[i] for i in gpus),
        ):
            generator.manual_seed(seed[0])
        yield
