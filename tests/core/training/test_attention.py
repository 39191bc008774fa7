import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prove_core.training.attention import Context, block_attention


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, context: Context, scaling: float) -> torch.Tensor:
    """Row by row: softmax over the visible context and the earlier rows of the same block."""
    batch, heads, rows, dim = q.shape
    shared, blocks = heads // k.shape[1], context.bias.shape[1]
    width = rows // blocks
    out = torch.zeros(batch, rows, heads, dim, dtype=q.dtype)
    for b in range(batch):
        for h in range(heads):
            g = h // shared
            for r in range(rows):
                block, depth = divmod(r, width)
                seen = context.bias[b, block] == 0
                own = slice(block * width, block * width + depth + 1)
                keys = torch.cat((context.keys[0][b, g, seen], k[b, g, own]))
                values = torch.cat((context.values[0][b, g, seen], v[b, g, own]))
                out[b, r, h] = torch.softmax(keys @ q[b, h, r] * scaling, 0) @ values
    return out


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(0, 99),
)
def test_values_and_gradients_equal_the_definition(
    batch: int, kv_heads: int, shared: int, blocks: int, width: int, length: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    q = random(batch, kv_heads * shared, blocks * width, 6).requires_grad_()
    k, v = (random(batch, kv_heads, blocks * width, 6).requires_grad_() for _ in range(2))
    visible = torch.rand(batch, blocks, length, generator=generator) < 0.6
    visible[..., 0] = True
    bias = torch.where(visible, 0.0, float("-inf")).double()
    context = Context([random(batch, kv_heads, length, 6)], [random(batch, kv_heads, length, 6)], bias)
    ours, expected = block_attention(q, k, v, context, 0, 0.4), reference(q, k, v, context, 0.4)
    torch.testing.assert_close(ours, expected)
    upstream = random(*ours.shape)
    got = torch.autograd.grad((ours * upstream).sum(), (q, k, v))
    torch.testing.assert_close(got, torch.autograd.grad((expected * upstream).sum(), (q, k, v)))
