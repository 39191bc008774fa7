"""Which decoder layers matter: the ones that turn the hidden states most (block influence, arXiv 2403.03853)."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from prove_core.errors import UnsupportedModel
from prove_core.training.dataset import Example


@torch.no_grad()
def influences(model: PreTrainedModel, examples: Sequence[Example]) -> list[float]:
    """For each decoder layer 1 - the mean cosine of what goes in and what comes out, over the examples' tokens."""
    layers = getattr(model.get_decoder(), "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise UnsupportedModel("the layers of this model type cannot be told apart: give `layers` yourself")
    sums = [0.0] * len(layers)
    tokens = 0

    def note(index: int, before: Tensor, after: Tensor) -> None:
        cosine = functional.cosine_similarity(before.float(), after.float(), dim=-1)
        sums[index] += float((1.0 - cosine).sum())

    def hook(index: int) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor | tuple[Tensor, ...]], None]:
        return lambda _, inputs, output: note(index, inputs[0], output[0] if isinstance(output, tuple) else output)

    hooks = [layer.register_forward_hook(hook(index)) for index, layer in enumerate(layers)]
    try:
        for example in examples:
            model.get_decoder()(input_ids=torch.tensor([example.tokens], device=model.device), use_cache=False)
            tokens += len(example.tokens)
    finally:
        for registered in hooks:
            registered.remove()
    return [total / tokens for total in sums]


def most_influential(values: Sequence[float], count: int) -> tuple[int, ...]:
    """The `count` layers of the highest influence, in order."""
    return tuple(sorted(sorted(range(len(values)), key=lambda index: -values[index])[:count]))
