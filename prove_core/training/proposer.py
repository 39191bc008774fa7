"""A block proposer in training: placeholder rows behind a clean stream, with a light sequential head on top."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, DynamicCache, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from prove_core.errors import CheckpointError
from prove_core.model.sequential import SequentialHead
from prove_core.training.attention import Context, context_attention
from prove_core.training.backbone import Backbone
from prove_core.training.config import AdapterConfig, Method
from prove_core.training.dataset import Example
from prove_core.training.layout import BlockBatch
from prove_core.training.truncation import truncate

ATTENTION = "prove_block_training"
AttentionInterface.register(ATTENTION, context_attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
PLACEHOLDER = "placeholder"
SEQUENTIAL = "sequential."


@dataclass(frozen=True, slots=True)
class Rows:
    """Last hidden states: of the placeholders [batch, blocks, W, H], of the clean stream [batch, length, H].

    The clean stream's carry a gradient unless the adapter is gated.
    """

    placeholders: Tensor
    clean: Tensor


class BlockProposer:
    """Wraps a causal LM (changed in place) and trains it, or adapters on it, to propose blocks.

    Gated adapters act on placeholder rows only: the clean stream runs without gradient through the stock weights, and
    all that placeholder rows take from it is its KV.
    """

    def __init__(
        self, model: PreTrainedModel, config: AdapterConfig, *, method: Method = Method.GATED, seed: int = 0
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        lora = None if method is Method.FULL else (config.rank, config.scale)
        self.backbone = Backbone(model, lora, generator)
        self.config = config
        self.method = method
        if method is Method.UNGATED:
            self.backbone.gate.open = True
        embedding = self.backbone.embedding.weight.detach().float().cpu()
        count = config.block_size - 1 if config.placeholders == "distinct" else 1
        start = embedding.mean(0, keepdim=True).repeat(count, 1)
        noise = torch.randn(start.shape, generator=generator) * 0.1 * embedding.std()
        self.placeholder = nn.Parameter((start + noise).to(model.device))
        self.sequential = self._new_head(config, generator) if config.sequential else None

    def _new_head(self, config: AdapterConfig, generator: torch.Generator) -> SequentialHead:
        weight = self.backbone.embedding.weight
        head = SequentialHead(weight.shape[1], config.sequential, config.block_size - 1, generator)
        return head.to(weight.device)

    @property
    def head(self) -> Tensor:
        """[vocabulary, hidden]."""
        return self.backbone.head

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The trained parameters by their saved names: placeholders, sequential head, LoRA matrices or weights."""
        yield PLACEHOLDER, self.placeholder
        if self.sequential is not None:
            yield from self.sequential.named_parameters(SEQUENTIAL.rstrip("."))
        yield from self.backbone.named_parameters()

    def start_from_tokens(self, examples: Sequence[Example]) -> None:
        """Start the placeholders at the mean embedding of the answers' tokens, closer to real inputs."""
        weight = self.backbone.embedding.weight.detach()
        counts = torch.bincount(torch.tensor([t for e in examples for t in e.answer]), minlength=weight.shape[0])
        mean = (counts.float() / counts.sum()).to(weight.device) @ weight.float()
        with torch.no_grad():
            self.placeholder.add_(mean - self.placeholder.mean(0))

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over trained tensors; a lower rank or a narrower head is embedded so that it computes the same.

        Of a higher rank, the largest singular values of every B A are kept. Raises CheckpointError for tensors that are
        missing or do not fit, and for a head that a wider one could not equal: its recurrence norms the whole state, so
        new units would change the old ones.
        """
        width = len(tensors.get(f"{SEQUENTIAL}a", ()))
        if 0 < width < self.config.sequential and bool(tensors.get(f"{SEQUENTIAL}r", torch.zeros(0)).any()):
            raise CheckpointError(f"a recurrent head of width {width} cannot be widened: set adapter.sequential to it")
        with torch.no_grad():
            tensors = truncate(tensors, self.config.rank)
            for name, parameter in self.named_parameters():
                if name not in tensors:
                    if name.startswith(SEQUENTIAL):
                        continue  # a fresh head changes nothing
                    raise CheckpointError(f"the adapter to start from lacks {name}")
                _take_over(parameter, tensors[name], name)

    def rows(self, batch: BlockBatch) -> Rows:
        """One pass of the clean stream, then one of the placeholders over its KV."""
        clean, context = self._clean(batch)
        rows, blocks, width = batch.targets.shape
        last_row = len(self.placeholder) - 1
        index = torch.arange(width, device=clean.device).clamp(max=last_row)
        embedded = self.placeholder.to(clean.dtype)[index]
        inputs = embedded.expand(rows, blocks, width, -1).reshape(rows, blocks * width, -1)
        self.backbone.use_attention(ATTENTION)
        with self.backbone.gate.opened():
            out = self.backbone.decoder(
                inputs_embeds=inputs,
                position_ids=batch.positions,
                attention_mask=context.bias[:, None],  # four dimensions: passed on as it is
                use_cache=False,
                block_context=context,
            )
        return Rows(out.last_hidden_state.view(rows, blocks, width, -1), clean)

    def _clean(self, batch: BlockBatch) -> tuple[Tensor, Context]:
        self.backbone.use_attention("sdpa")
        with torch.no_grad() if self.method is Method.GATED else nullcontext():
            cache = DynamicCache()
            out = self.backbone.decoder(batch.tokens, None, None, cache, use_cache=True)  # releases name it differently
        hidden: Tensor = out.last_hidden_state
        visible = batch.visible()
        bias = torch.zeros(visible.shape, dtype=hidden.dtype, device=hidden.device).masked_fill_(~visible, -torch.inf)
        return hidden, Context([layer.keys for layer in cache.layers], [layer.values for layer in cache.layers], bias)

    def corrected(self, hidden: Tensor, batch: BlockBatch) -> Tensor:
        """`hidden` [batch, blocks, W, H] after the sequential head, given the true tokens before.

        A leading placeholder that matches has the true tokens before it in inference too, so the matching prefix is the
        same as when the head sees its own proposals. Without a head, `hidden` as it is.
        """
        if self.sequential is None:
            return hidden
        return self.sequential.along(hidden, self.backbone.embedding(batch.previous))


def _take_over(parameter: Tensor, value: Tensor, name: str) -> None:
    """Copy `value` into the leading part of `parameter`, whose remaining columns (of a B) become zero."""
    value = value.float()
    if name == PLACEHOLDER:
        value = value[:1].expand_as(parameter) if value.shape[0] == 1 else value
    if value.dim() != parameter.dim() or any(v > p for v, p in zip(value.shape, parameter.shape, strict=True)):
        raise CheckpointError(f"{name} has shape {tuple(value.shape)}, which does not fit {tuple(parameter.shape)}")
    if name.endswith("lora_B.weight"):
        parameter.zero_()
    parameter[tuple(slice(0, size) for size in value.shape)] = value
