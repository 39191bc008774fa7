"""The seam to transformers: its attention layers call us, with the pass's context among their keyword arguments."""

from typing import Any, Protocol

import torch
from transformers import AttentionInterface

ATTENTION = "prove"  # the name models are loaded with: attn_implementation=ATTENTION
CONTEXT = "paged"  # the keyword of model(...) that carries an AttentionContext down to every layer


class AttentionContext(Protocol):
    """What stands behind the attention layers during one forward pass."""

    def attend(
        self, module: torch.nn.Module, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: dict[str, Any]
    ) -> torch.Tensor:
        """Attention of layer `module` for q, k, v `[rows, heads, dim]`; returns `[rows, query_heads, value_dim]`."""
        ...


def register() -> None:
    """Make `ATTENTION` known to transformers (idempotent). No mask function comes with it, so none is ever built."""
    AttentionInterface.register(ATTENTION, _attention)


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    paged: AttentionContext,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' contract: query `[1, heads, rows, dim]` in, `[1, rows, heads, value_dim]` out."""
    options["attention_mask"] = attention_mask
    q, k, v = query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)
    return paged.attend(module, q, k, v, options)[None], None
