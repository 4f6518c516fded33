"""Averages format gradients for DistributedDataParallel.

Its own reducer is in C++ and makes its buckets by the storage dtype.
"""

from __future__ import annotations

import types
import weakref

import torch
import torch.distributed as dist
from torch.autograd import Variable


class Bucket:
    """Gradients of one dtype that are sent together.

    Communication hooks use it like ``torch.distributed.GradBucket``.
    """

    def __init__(
        self, index: int, count: int, numbers: list[int], parameters: list[torch.nn.Parameter]
    ) -> None:
        self._index, self._count, self.numbers, self._parameters = index, count, numbers, parameters
        self._flat: torch.Tensor | None = None
        self.pending = len(numbers)
        self.future: torch.futures.Future | None = None
        self.work: dist.Work | None = None

    def fill(self) -> None:
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
        self._flat = torch.cat([part.detach().reshape(-1) for part in parts])

    def index(self) -> int:
        return self._index

    def is_last(self) -> bool:
        return self._index == self._count - 1

    def buffer(self) -> torch.Tensor:
        return self._flat

    def set_buffer(self, flat: torch.Tensor) -> None:
        self._flat = flat

    def parameters(self) -> list[torch.nn.Parameter]:
        return list(self._parameters)

    def parts(self, flat: torch.Tensor) -> list[torch.Tensor]:
        return [
            part.view(p.shape)
            for part, p in zip(
                flat.split([p.numel() for p in self._parameters]), self._parameters, strict=True
            )
        ]

    def gradients(self) -> list[torch.Tensor]:
        return self.parts(self._flat)


def _group_parameters(
    parameters: list[torch.nn.Parameter], first_bytes: int, most_bytes: int
) -> list[list[int]]:
    """Group numbers of parameters by dtype, the last registered first, as their gradients arrive.

    The first bucket has first_bytes at most, so that it is sent early.
    """
    buckets: list[list[int]] = []
    open_ones: dict[torch.dtype, tuple[list[int], int]] = {}
    limits: dict[torch.dtype, int] = {}
    for number in reversed(range(len(parameters))):
        p = parameters[number]
        numbers, size = open_ones.get(p.dtype, ([], 0))
        if not numbers or size + p.nbytes > limits[p.dtype]:
            limits[p.dtype] = most_bytes if buckets else min(first_bytes, most_bytes)
            numbers, size = [], 0
            buckets.append(numbers)
        numbers.append(number)
        open_ones[p.dtype] = numbers, size + p.nbytes
    return buckets


class Reducer:
    """Averages gradients of format parameters in the place of ``DistributedDataParallel.reducer``.

    Gradients of stock dtypes are averaged by PyTorch's reducer, if there are any.

    A gradient is ready when AccumulateGrad has written it. A bucket whose gradients are all ready
    is reduced in the background, in the order of the buckets, so that all ranks call alike. The
    engine reports the end of backward, and then the averages are written to the gradients. Beside
    PyTorch's reducer, and for a static graph, everything is reduced at the end. Otherwise calls of
    two ranks would not match if their gradients arrived in different orders.
    """

    def __init__(self, ddp, named: dict[str, torch.nn.Parameter], stock) -> None:
        self._ddp, self._stock = weakref.ref(ddp), stock
        self._names, self._parameters = list(named), list(named.values())
        cap = ddp.bucket_bytes_cap
        groups = _group_parameters(self._parameters, dist._DEFAULT_FIRST_BUCKET_BYTES, cap)
        self._buckets = [
            Bucket(i, len(groups), g, [self._parameters[n] for n in g])
            for i, g in enumerate(groups)
        ]
        self._bucket_of = {n: bucket for bucket in self._buckets for n in bucket.numbers}
        self._find_unused, self._static = ddp.find_unused_parameters, False
        self._hook, self._hook_state = None, None
        self._armed = self._began = self._queued = False
        self._ready: set[int] = set()  # since the last forward pass
        self._unused: set[int] = set()
        self._used: set[int] = set()  # since the last reduction
        self._next = 0
        this = weakref.ref(self)
        self._handles = [
            p.register_post_accumulate_grad_hook(_hook_of(this, n))
            for n, p in enumerate(self._parameters)
        ]
        weakref.finalize(self, _remove, self._handles)

    def __getattr__(self, name):
        stock = vars(self).get("_stock")
        if stock is None:
            raise AttributeError(
                f"expected an attribute of Reducer, but got {name!r}; it exists only beside "
                "parameters of stock dtypes"
            )
        return getattr(stock, name)

    # ---- called by DistributedDataParallel ----

    def prepare_for_forward(self) -> None:
        if self._stock is not None:
            self._stock.prepare_for_forward()

    def _rebuild_buckets(self) -> bool:
        """Called before a forward pass; the buckets stay as they are."""
        self._check_reducer_finalized()
        return self._stock._rebuild_buckets() if self._stock is not None else False

    def _check_reducer_finalized(self) -> None:
        if self._armed and self._began:
            missing = [
                f"{self._names[n]} ({self._parameters[n].dtype})"
                for n in range(len(self._names))
                if n not in self._ready
            ]
            raise RuntimeError(
                "DistributedDataParallel: expected a gradient for every parameter in the last "
                f"backward pass, but got none for {', '.join(missing)}; use "
                "find_unused_parameters=True if they are not always used, and compute the loss "
                "from the model's outputs"
            )
        if self._stock is not None:
            self._stock._check_reducer_finalized()

    def prepare_for_backward(self, outputs) -> None:
        if self._stock is not None:
            self._stock.prepare_for_backward(outputs)
        self._armed, self._began, self._queued, self._next = True, False, False, 0
        self._ready.clear()
        for bucket in self._buckets:
            bucket.pending, bucket.work, bucket.future = len(bucket.numbers), None, None
        if self._static:
            # Backward then begins with _DDPSink, which queues _delay_all_reduce.
            self._ddp()._static_graph_delay_allreduce_enqueued = False
        elif self._find_unused:
            self._unused = set(range(len(self._parameters))) - self._find_reached(outputs)
            # Other ranks wait for this rank's part, even if no format parameter is used here.
            for t in outputs:
                if t.requires_grad and t.grad_fn is not None:
                    t.register_hook(lambda _: self._begin())

    def _delay_all_reduce(self) -> None:
        """Reduce the gradients of a static graph; _DDPSink queues this for the end of backward."""
        ddp = self._ddp()
        if self._stock is not None and not vars(self).get("_stock_delayed"):
            self._stock_delayed = True
            self._stock._delay_all_reduce()
        if self._armed:
            self._finish()
        ddp._static_graph_delay_allreduce_enqueued = True

    def _set_static_graph(self) -> None:
        self._static = True
        if self._stock is not None:
            self._stock._set_static_graph()

    def _remove_autograd_hooks(self) -> None:
        _remove(self._handles)
        if self._stock is not None:
            self._stock._remove_autograd_hooks()

    def _reset_state(self) -> None:
        self._armed = False
        if self._stock is not None:
            self._stock._reset_state()

    def _update_process_group(self, group) -> None:
        if self._stock is not None:
            self._stock._update_process_group(group)

    def register_hook(self, state, hook) -> None:
        if self._hook is not None:
            # The message of PyTorch's reducer.
            raise RuntimeError(
                "register_comm_hook or register_builtin_comm_hook can only be called once."
            )
        self._hook, self._hook_state = hook, state
        if self._stock is not None:
            dist._register_comm_hook(self._stock, state, hook)

    # ---- within backward ----

    def _begin(self) -> None:
        if not self._armed:
            return
        if not self._queued and not self._static:
            self._queued = True
            Variable._execution_engine.queue_callback(self._end)
        if not self._began:
            self._began = True
            for n in self._unused:
                self._mark(n)
            self._unused = set()

    def _receive(self, number: int) -> None:
        self._used.add(number)
        # In no_sync, or a second backward pass, gradients are kept, and sent with the next ones.
        if not self._armed:
            return
        self._begin()
        if self._static:
            self._ready.add(number)
            return
        if number in self._ready:
            raise RuntimeError(
                f"DistributedDataParallel: expected one gradient for {self._names[number]} "
                f"({self._parameters[number].dtype}) in a backward pass, but got another; use "
                "static_graph=True if checkpoints run parts of the model again"
            )
        self._mark(number)

    def _mark(self, number: int) -> None:
        self._ready.add(number)
        self._bucket_of[number].pending -= 1
        if self._stock is None:
            self._launch()

    def _launch(self, everything: bool = False) -> None:
        while self._next < len(self._buckets) and (
            everything or self._buckets[self._next].pending == 0
        ):
            bucket = self._buckets[self._next]
            self._next += 1
            with torch.no_grad():
                bucket.fill()
                if self._hook is not None:
                    bucket.future = self._hook(self._hook_state, bucket)
                else:
                    bucket.work = dist.all_reduce(
                        bucket.buffer(),
                        op=dist.ReduceOp.AVG,
                        group=self._ddp().process_group,
                        async_op=True,
                    )

    def _end(self) -> None:
        self._queued = False
        if self._armed and len(self._ready) == len(self._parameters):
            self._finish()

    def _finish(self) -> None:
        self._launch(everything=True)
        used = self._used_anywhere()
        with torch.no_grad():
            for bucket in self._buckets:
                self._write(bucket, used)
        self._armed = self._began = False
        self._used.clear()

    def _used_anywhere(self) -> set[int]:
        """Return the parameters that any rank has used. The others keep their gradients.

        PyTorch's reducer does the same.
        """
        if not (self._find_unused or self._static):
            return set(range(len(self._parameters)))
        used = torch.zeros(
            len(self._parameters), dtype=torch.int32, device=self._parameters[0].device
        )
        used[list(self._used)] = 1
        dist.all_reduce(used, group=self._ddp().process_group)
        return set(used.nonzero().flatten().tolist())

    def _write(self, bucket: Bucket, used: set[int]) -> None:
        if bucket.future is not None:
            flat = bucket.future.wait()
            flat = flat[0] if isinstance(flat, (list, tuple)) else flat
        else:
            bucket.work.wait()
            flat = bucket.buffer()
        for n, part in zip(bucket.numbers, bucket.parts(flat), strict=True):
            p = self._parameters[n]
            if n not in used:
                continue
            if p.grad is None:
                p.grad = torch.empty_like(p)
            p.grad.copy_(part)  # a hook's result in another dtype is rounded here
        bucket.set_buffer(None)
        bucket.work = bucket.future = None

    def _find_reached(self, outputs) -> set[int]:
        """Return the parameters in the graph behind the outputs."""
        numbers = {p: n for n, p in enumerate(self._parameters)}
        reached = {numbers[t] for t in outputs if t in numbers}
        seen, stack = set(), [t.grad_fn for t in outputs if t.grad_fn is not None]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            variable = getattr(node, "variable", None)
            if variable is not None and variable in numbers:
                reached.add(numbers[variable])
            stack += [following for following, _ in node.next_functions if following is not None]
        return reached


def _hook_of(reducer, number: int):
    def ready(_):
        if (owner := reducer()) is not None:
            owner._receive(number)

    return ready


def _remove(handles: list) -> None:
    while handles:
        handles.pop().remove()


class Logger:
    """Replaces PyTorch's logger, which looks into its reducer, where that has no parameters."""

    def set_runtime_stats_and_log(self) -> None:
        pass

    def set_error_and_log(self, text: str) -> None:
        pass

    def _set_comm_hook_name(self, name: str) -> None:
        pass

    def _set_static_graph(self) -> None:
        pass

    def _get_ddp_logging_data(self):
        return types.SimpleNamespace(strs_map={}, ints_map={})
