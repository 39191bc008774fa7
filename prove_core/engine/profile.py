"""What the largest pass takes of a GPU's memory, found out by running it on a loaded model without its KV."""

from typing import Any, Protocol

import torch
from transformers import PreTrainedModel

from prove_core.model.hook import CONTEXT

FLASHINFER = 192 << 20  # bytes: its workspaces, and masks
RECORDED = 384 << 20  # bytes: static buffers of recorded passes, each with a plan of its own


class Meter(Protocol):
    """Counts the memory of a device."""

    def start(self) -> None:
        """Forget the peak so far."""
        ...

    def above(self) -> int:
        """Bytes by which the peak since `start` exceeds what was taken then."""
        ...


class CudaMeter:
    """Torch's own count of what it has allocated on a device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._base = 0

    def start(self) -> None:
        """See `Meter.start`."""
        torch.cuda.reset_peak_memory_stats(self._device)
        self._base = torch.cuda.memory_allocated(self._device)

    def above(self) -> int:
        """See `Meter.above`."""
        torch.cuda.synchronize(self._device)
        return int(torch.cuda.max_memory_allocated(self._device)) - self._base


class _NoAttention:
    def attend(
        self, module: torch.nn.Module, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: dict[str, Any]
    ) -> torch.Tensor:
        return q.new_zeros(q.shape[0], q.shape[1], v.shape[2])


@torch.inference_mode()
def profiled_pass(model: PreTrainedModel, rows: int, meter: Meter) -> int:
    """Bytes that a pass of `rows` rows, all with logits and their probabilities, takes beside weights and KV.

    The model must have been probed.
    """
    places = torch.zeros(1, rows, dtype=torch.int64, device=model.device)
    meter.start()
    output = model(
        input_ids=places,
        position_ids=places,
        use_cache=False,
        logits_to_keep=torch.arange(rows, device=model.device),
        **{CONTEXT: _NoAttention()},
    )
    logits = output.logits[0].float()
    probabilities = torch.softmax(logits, -1)
    del output, logits, probabilities
    return meter.above()


def reserve(peak: int, *, recorded: bool) -> int:
    """Bytes to leave free of KV on a GPU whose largest pass takes `peak`.

    Recorded passes keep memory of their own, as much as the largest of them takes.
    """
    return peak + FLASHINFER + (peak + RECORDED if recorded else 0)
