"""The processes that run one model together: what they send each other during a pass.

Tensors are added up and joined over NCCL between GPUs, over gloo between CPUs; what a pass consists of goes from rank 0
to the others over gloo, in one broadcast. The groups are objects of their own, not torch's default group, so that a
process may belong to several and a test may hold all ranks in threads.
"""

from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed
from torch import Tensor

from prove_core.model.place import Place

dist: Any = torch.distributed  # its stubs lack the groups and stores
PASS_TIMEOUT = timedelta(seconds=60)  # for one exchange within a pass: longer, and a rank hangs
IDLE_TIMEOUT = timedelta(days=3650)  # for the next pass: it comes when somebody asks something
_FIRST = 4096  # bytes of the broadcast that most passes fit into
_LENGTH = 4


class _Work(Protocol):
    def wait(self) -> object: ...


class _Group(Protocol):
    """Of torch's process groups, what is used here."""

    def allreduce(self, tensors: list[Tensor]) -> _Work: ...

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor]) -> _Work: ...

    def broadcast(self, tensors: list[Tensor], options: Any) -> _Work: ...


class Store(Protocol):
    """Where ranks meet; it ends with this object."""

    port: int


def open_store(address: str) -> Store:
    """The store at which the ranks of one replica meet, on a free port of this node. Rank 0 keeps it."""
    store: Store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)
    return store


class Ranks:
    """One rank's view of its group. All ranks must make the same calls in the same order.

    `ordered`: sums are made in the order of ranks, the same for every element whatever the tensor's shape; otherwise
    the library chooses, which with more than two ranks may make a row's bits depend on its place in the pass.
    """

    def __init__(self, rank: int, size: int, tensors: _Group, messages: _Group, *, ordered: bool) -> None:
        self.rank = rank
        self.size = size
        self._tensors = tensors
        self._messages = messages
        self._ordered = ordered

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which schedules, and alone reads what comes out of a pass."""
        return self.rank == 0

    def sum(self, x: Tensor) -> Tensor:
        """The sum of all ranks' `x`, in its dtype; may overwrite `x`."""
        if not self._ordered:
            self._tensors.allreduce([x]).wait()
            return x
        first, *others = self._parts(x)
        total = first.float()
        for part in others:
            total = total + part
        return total.to(x.dtype)

    def join(self, x: Tensor) -> Tensor:
        """All ranks' `x` side by side in the last dimension, in order of rank."""
        if not x.numel():  # a pass of prefill alone has no logits
            return x.new_empty(*x.shape[:-1], self.size * x.shape[-1])
        return torch.cat(self._parts(x), dim=-1)

    def least(self, value: int) -> int:
        """The smallest of all ranks' values."""
        return min(int(part) for part in self._gathered(self._messages, torch.tensor([value])))

    def meet(self) -> None:
        """Wait until all ranks are here, however long one takes: to load a model, say."""
        self.least(0)

    def send(self, message: bytes) -> None:
        """From rank 0 to all others, which must be in `receive`."""
        frame = len(message).to_bytes(_LENGTH, "little") + message
        first = torch.zeros(_FIRST, dtype=torch.uint8)
        head = torch.frombuffer(bytearray(frame[:_FIRST]), dtype=torch.uint8)
        first[: len(head)] = head
        self._broadcast(first)
        if len(frame) > _FIRST:
            self._broadcast(torch.frombuffer(bytearray(frame[_FIRST:]), dtype=torch.uint8))

    def receive(self) -> bytes:
        """What rank 0 sends next; waits for it as long as it takes. Raises RuntimeError when rank 0 is gone."""
        first = torch.empty(_FIRST, dtype=torch.uint8)
        self._broadcast(first)
        frame = first.numpy().tobytes()
        length = int.from_bytes(frame[:_LENGTH], "little")
        missing = _LENGTH + length - _FIRST
        if missing > 0:
            rest = torch.empty(missing, dtype=torch.uint8)
            self._broadcast(rest)
            frame += rest.numpy().tobytes()
        return frame[_LENGTH : _LENGTH + length]

    def _parts(self, x: Tensor) -> list[Tensor]:
        return self._gathered(self._tensors, x.contiguous())

    def _gathered(self, group: _Group, x: Tensor) -> list[Tensor]:
        parts = [torch.empty_like(x) for _ in range(self.size)]
        group.allgather([parts], [x]).wait()
        return parts

    def _broadcast(self, x: Tensor) -> None:
        options = dist.BroadcastOptions()
        options.rootRank = 0
        options.rootTensor = 0
        self._messages.broadcast([x], options).wait()


def join_ranks(place: Place, device: torch.device, *, deterministic: bool) -> Ranks:
    """Meet the other ranks; returns when all are there. Raises RuntimeError when they do not come."""
    store: Store = dist.TCPStore(place.store_address, place.store_port, is_master=False)
    messages = _gloo(store, "messages", place, IDLE_TIMEOUT)
    if device.type != "cuda":
        return Ranks(place.rank, place.size, _gloo(store, "tensors", place, PASS_TIMEOUT), messages, ordered=True)
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = PASS_TIMEOUT
    tensors = dist.ProcessGroupNCCL(dist.PrefixStore("tensors", store), place.rank, place.size, options)
    return Ranks(place.rank, place.size, tensors, messages, ordered=deterministic and place.size > 2)


def _gloo(store: Store, name: str, place: Place, timeout: timedelta) -> _Group:
    options = dist.ProcessGroupGloo._Options()
    # by address: a node's host name may resolve to one that the others cannot reach
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=place.address)]
    options._timeout = timeout
    options._threads = 1
    group: _Group = dist.ProcessGroupGloo(dist.PrefixStore(name, store), place.rank, place.size, options)
    return group
