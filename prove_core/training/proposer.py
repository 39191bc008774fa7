"""A block proposer in training: the frozen checkpoint, gated adapters, and an embedding per placeholder position."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, DynamicCache, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from prove_core.errors import CheckpointError, UnsupportedModel
from prove_core.model.adapters import PREFIX
from prove_core.model.sequential import SequentialHead
from prove_core.training.attention import Context, context_attention
from prove_core.training.dataset import Example
from prove_core.training.layout import BlockBatch
from prove_core.training.lora import Gate, attach

ATTENTION = "prove_block_training"
AttentionInterface.register(ATTENTION, context_attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
PLACEHOLDER = "placeholder"
SEQUENTIAL = "sequential."


class BlockProposer:
    """Wraps a causal LM (changed in place) whose adapters act on placeholder rows only.

    The clean stream runs without gradient through the stock weights; all that placeholder rows take from it is its KV.
    """

    def __init__(
        self, model: PreTrainedModel, *, block_size: int, rank: int, scale: float, seed: int, sequential: int = 0
    ) -> None:
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        model.eval()
        self._model = model
        self._gate = Gate()
        self.block_size = block_size
        self.rank = rank
        self.scale = scale
        generator = torch.Generator().manual_seed(seed)
        decoder = self._decoder
        path = next((name for name, module in model.named_modules() if module is decoder), "")
        adapters = attach(decoder, rank, scale, self._gate, generator)
        if not adapters:
            raise UnsupportedModel("no linear layer to adapt: not a decoder of plain torch.nn.Linear layers")
        self._adapters = {f"{path}.{name}" if path else name: adapter for name, adapter in adapters.items()}
        embedding = self._embedding.weight
        start = embedding.detach().float().mean(0, keepdim=True).repeat(block_size - 1, 1)
        noise = torch.randn(start.shape, generator=generator) * 0.1 * embedding.float().std()
        self.placeholder = nn.Parameter(start + noise)
        hidden = embedding.shape[1]
        self.sequential = SequentialHead(hidden, sequential, block_size - 1, generator) if sequential else None

    @property
    def _decoder(self) -> nn.Module:
        decoder = self._model.get_decoder()
        assert isinstance(decoder, nn.Module)
        return decoder

    @property
    def _embedding(self) -> nn.Embedding:
        embedding = self._model.get_input_embeddings()
        assert isinstance(embedding, nn.Embedding)
        return embedding

    @property
    def head(self) -> Tensor:
        """[vocabulary, hidden], frozen."""
        weight = self._model.get_output_embeddings().weight
        assert isinstance(weight, Tensor)
        return weight

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The trained parameters (float32) by their saved names: placeholders, sequential head, adapters."""
        yield PLACEHOLDER, self.placeholder
        if self.sequential is not None:
            yield from self.sequential.named_parameters(SEQUENTIAL.rstrip("."))
        for path, adapter in self._adapters.items():
            yield f"{PREFIX}{path}.lora_A.weight", adapter.lora_a
            yield f"{PREFIX}{path}.lora_B.weight", adapter.lora_b

    def start_from_tokens(self, examples: Sequence[Example]) -> None:
        """Start the placeholders at the mean embedding of the answers' tokens, closer to real inputs."""
        weight = self._embedding.weight
        counts = torch.bincount(torch.tensor([t for e in examples for t in e.answer]), minlength=weight.shape[0])
        mean = (counts.float() / counts.sum()) @ weight.float()
        with torch.no_grad():
            self.placeholder.add_(mean - self.placeholder.mean(0))

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over trained tensors; those of a lower rank leave the further B at zero, so they compute the same."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name not in tensors:
                    if name.startswith(SEQUENTIAL):
                        continue  # a fresh head changes nothing
                    raise CheckpointError(f"the adapter to start from lacks {name}")
                _take_over(parameter, tensors[name], name)

    def context(self, batch: BlockBatch) -> Context:
        """Run the clean stream of `batch` through the stock model."""
        self._use("sdpa")
        with torch.no_grad():
            cache = DynamicCache()
            self._decoder(batch.tokens, None, None, cache, use_cache=True)  # its name differs between releases
            hidden = self._embedding.weight
            bias = torch.zeros(batch.visible().shape, dtype=hidden.dtype).masked_fill_(~batch.visible(), float("-inf"))
        return Context([layer.keys for layer in cache.layers], [layer.values for layer in cache.layers], bias)

    def hidden(self, batch: BlockBatch) -> Tensor:
        """[batch, blocks, W, hidden]: the placeholder rows' last hidden states, with gradient."""
        context = self.context(batch)
        rows, blocks, width = batch.targets.shape
        index = torch.arange(width).clamp(max=self.block_size - 2)
        embedded = self.placeholder.to(self._embedding.weight.dtype)[index]
        inputs = embedded.expand(rows, blocks, width, -1).reshape(rows, blocks * width, -1)
        self._use(ATTENTION)
        with self._gate.opened():
            out = self._decoder(
                inputs_embeds=inputs,
                position_ids=batch.positions,
                attention_mask=context.bias[:, None],  # four dimensions: passed on as it is
                use_cache=False,
                block_context=context,
            )
        last: Tensor = out.last_hidden_state
        return last.view(rows, blocks, width, -1)

    def corrected(self, hidden: Tensor, batch: BlockBatch) -> Tensor:
        """`hidden` after the sequential head, given the true tokens before; as it is without one.

        A leading placeholder that matches has the true tokens before it in inference too, so the matching prefix is the
        same as when the head sees its own proposals.
        """
        if self.sequential is None:
            return hidden
        previous = self._embedding(batch.previous)
        corrected: Tensor = self.sequential(hidden, previous, torch.arange(hidden.shape[2]))
        return corrected

    def _use(self, attention: str) -> None:
        self._model.config._attn_implementation = attention


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
