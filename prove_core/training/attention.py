"""Attention of placeholder rows to the clean stream and to their own block, with a hand-written backward.

Plain batched products beat torch's masked CPU kernels, and a context without gradient needs a third fewer of them.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from prove_core.errors import UnsupportedModel


@dataclass(frozen=True, slots=True)
class Context:
    """What placeholder rows attend to besides their block: the clean stream's KV, with gradient if it is trained.

    keys, values  per layer [batch, kv_heads, length, head_dim] (keys rotated)
    bias          [batch, blocks, length], 0 where a block sees a clean token and -inf elsewhere, in the rows' dtype
    """

    keys: list[Tensor]
    values: list[Tensor]
    bias: Tensor


class _BlockAttention(torch.autograd.Function):
    """Rows grouped as [G, N, n * W]: G = batch * kv_heads, N blocks, n query heads per KV head, W rows per block.

    query [G, N, n * W, D] (scaled), own_key and own_value [G, N, W, D], key and value [G, length, D],
    bias [G, N, 1, length], causal [n * W, W].
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        own_key: Tensor,
        own_value: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor,
        causal: Tensor,
    ) -> Tensor:
        groups, blocks, rows, dim = query.shape
        length, width = key.shape[1], own_key.shape[2]
        flat = query.view(groups, blocks * rows, dim)
        far = torch.bmm(flat, key.transpose(1, 2)).view(groups, blocks, rows, length).add_(bias)
        near = torch.matmul(query, own_key.transpose(2, 3)).add_(causal)
        weights = torch.softmax(torch.cat((far, near), dim=-1), dim=-1)
        seen = weights[..., :length].view(groups, blocks * rows, length)
        out = torch.bmm(seen, value).view(groups, blocks, rows, dim) + torch.matmul(weights[..., length:], own_value)
        ctx.save_for_backward(query, own_key, own_value, key, value, weights, out)
        ctx.width = width
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, own_key, own_value, key, value, weights, out = ctx.saved_tensors
        (grad,) = grads
        grad = grad.contiguous()
        groups, blocks, rows, dim = query.shape
        length = key.shape[1]
        far = torch.bmm(grad.view(groups, blocks * rows, dim), value.transpose(1, 2)).view(groups, blocks, rows, length)
        near = torch.matmul(grad, own_value.transpose(2, 3))
        mean = (grad * out).sum(-1, keepdim=True)
        far.sub_(mean).mul_(weights[..., :length])
        near.sub_(mean).mul_(weights[..., length:])
        grad_query = torch.bmm(far.view(groups, blocks * rows, length), key).view_as(query) + torch.matmul(
            near, own_key
        )
        grad_own_key = torch.matmul(near.transpose(2, 3), query)
        grad_own_value = torch.matmul(weights[..., length:].transpose(2, 3), grad)
        grad_key, grad_value = None, None
        if ctx.needs_input_grad[3]:
            flat = (groups, blocks * rows)
            grad_key = torch.bmm(far.view(*flat, length).transpose(1, 2), query.view(*flat, dim))
            seen = weights[..., :length].reshape(*flat, length)
            grad_value = torch.bmm(seen.transpose(1, 2), grad.view(*flat, dim))
        return grad_query, grad_own_key, grad_own_value, grad_key, grad_value, None, None


def block_attention(
    query: Tensor, own_key: Tensor, own_value: Tensor, context: Context, layer: int, scaling: float
) -> Tensor:
    """Attend from placeholder rows [batch, heads, blocks * W, D]; answers [batch, blocks * W, heads, D].

    own_key and own_value are [batch, kv_heads, blocks * W, D].
    """
    batch, heads, _, dim = query.shape
    kv_heads, blocks = own_key.shape[1], context.bias.shape[1]
    width, shared = own_key.shape[2] // blocks, heads // kv_heads
    groups = batch * kv_heads
    rows = (query * scaling).reshape(groups, shared, blocks, width, dim).transpose(1, 2)
    own = (groups, blocks, width, dim)
    length = context.bias.shape[2]
    bias = context.bias[:, None].expand(batch, kv_heads, blocks, length).reshape(groups, blocks, 1, length)
    out: Tensor = _BlockAttention.apply(  # type: ignore[no-untyped-call]
        rows.reshape(groups, blocks, shared * width, dim).contiguous(),
        own_key.reshape(own),
        own_value.reshape(own),
        context.keys[layer].reshape(groups, length, dim),
        context.values[layer].reshape(groups, length, dim),
        bias,
        _causal(shared, width, query),
    )
    ordered = out.view(batch, kv_heads, blocks, shared, width, dim).permute(0, 2, 4, 1, 3, 5)
    return ordered.reshape(batch, blocks * width, heads, dim)


def _causal(shared: int, width: int, like: Tensor) -> Tensor:
    return like.new_full((width, width), float("-inf")).triu(1).repeat(shared, 1)


def context_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    block_context: Context,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """The same with the signature of transformers' attention functions; `block_context` rides on the model's kwargs."""
    if sliding_window is not None or softcap is not None:
        raise UnsupportedModel("training of models with sliding-window or soft-capped attention is not supported")
    layer = module.layer_idx
    assert isinstance(layer, int)
    return block_attention(query, key, value, block_context, layer, scaling), None
