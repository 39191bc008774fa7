"""A causal LM as the learners see it: decoder, embedding, head, and which of its weights are trained."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from prove_core.errors import UnsupportedModel
from prove_core.model.adapters import PREFIX
from prove_core.training.lora import Gate, LoraLinear, attach


class Backbone:
    """Wraps a model, changed in place: frozen with LoRA matrices on every linear layer, or trained as a whole.

    `gate` decides whether the LoRA matrices act. Raises UnsupportedModel where there is nothing to adapt.
    """

    def __init__(self, model: PreTrainedModel, lora: tuple[int, float] | None, generator: torch.Generator) -> None:
        self.model = model.eval()
        self.gate = Gate()
        self._adapters: dict[str, LoraLinear] = {}
        for parameter in model.parameters():
            parameter.requires_grad_(lora is None)
        if lora is not None:
            self._adapters = self._attach(*lora, generator)

    def _attach(self, rank: int, scale: float, generator: torch.Generator) -> dict[str, LoraLinear]:
        path = next((name for name, module in self.model.named_modules() if module is self.decoder), "")
        adapters = attach(self.decoder, rank, scale, self.gate, generator)
        if not adapters:
            raise UnsupportedModel("no linear layer to adapt: not a decoder of plain torch.nn.Linear layers")
        return {f"{path}.{name}" if path else name: adapter for name, adapter in adapters.items()}

    @property
    def decoder(self) -> nn.Module:
        """The model without its head."""
        decoder = self.model.get_decoder()
        assert isinstance(decoder, nn.Module)
        return decoder

    @property
    def embedding(self) -> nn.Embedding:
        """Ids to hidden."""
        embedding = self.model.get_input_embeddings()
        assert isinstance(embedding, nn.Embedding)
        return embedding

    @property
    def head(self) -> Tensor:
        """[vocabulary, hidden], with gradient when the whole model is trained."""
        weight = self.model.get_output_embeddings().weight
        assert isinstance(weight, Tensor)
        return weight

    @property
    def is_full(self) -> bool:
        """The whole model is trained."""
        return not self._adapters

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """What is trained, by saved names: LoRA matrices (float32) as in an adapter's file, or the model's weights."""
        if self.is_full:
            yield from self.model.named_parameters()
        for path, adapter in self._adapters.items():
            yield f"{PREFIX}{path}.lora_A.weight", adapter.lora_a
            yield f"{PREFIX}{path}.lora_B.weight", adapter.lora_b

    def use_attention(self, name: str) -> None:
        """Which attention function the next forward pass takes."""
        self.model.config._attn_implementation = name
