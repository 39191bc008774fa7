"""Linears in tiles: the same function, whatever the rows."""

import pytest
import torch
from torch import nn

from prove_core.model.tiled import TILE, SerialActivation, TiledLinear, make_deterministic, verified_spans
from tests.core.tiny import tiny_model


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(24,), (1, 24), (1, 7, 24), (1, 100, 24), (2, 3, 5, 24), (1, 0, 24)])
def test_is_the_linear(shape: tuple[int, ...], bias: bool) -> None:
    linear = nn.Linear(24, 10, bias=bias)
    x = torch.randn(*shape)
    out = TiledLinear(linear, verified_spans(linear))(x)
    assert out.shape == (*shape[:-1], 10)
    torch.testing.assert_close(out, linear(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_keep_their_bits(dtype: torch.dtype) -> None:
    linear = nn.Linear(48, 40).to(dtype)
    tiled = TiledLinear(linear, verified_spans(linear))
    x = torch.randn(150, 48).to(dtype)
    whole = tiled(x)
    for first, last in [(0, 1), (3, 12), (40, 149), (149, 150)]:
        assert torch.equal(tiled(x[first:last]), whole[first:last])


def test_spans_end_with_one_tile() -> None:
    assert verified_spans(nn.Linear(16, 16))[-1] == TILE


def test_activation_over_many_pieces() -> None:
    x = torch.randn(1, 64, 1536)
    torch.testing.assert_close(SerialActivation(nn.SiLU())(x), nn.functional.silu(x))


def test_tied_weights_stay_tied() -> None:
    model = tiny_model()
    model.lm_head.weight = model.model.embed_tokens.weight
    make_deterministic(model)
    assert model.lm_head.weight is model.model.embed_tokens.weight
