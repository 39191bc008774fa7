"""Linears in tiles: the same function, whatever the rows."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from prove_core.errors import UnsupportedModel
from prove_core.model.tiled import TILE, SerialActivation, TiledLinear, TiledNorm, make_deterministic, verified_spans
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


class CountingNorm(LlamaRMSNorm):  # type: ignore[misc]
    """Sums in another order where it has many rows, as a GPU's reductions do."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        x = hidden_states.flip(-1) if len(hidden_states) >= 128 else hidden_states
        variance = x.cumsum(-1)[..., -1:] / x.shape[-1]
        out: torch.Tensor = hidden_states / (1 + variance.square())
        return out


@pytest.mark.parametrize("norm", [LlamaRMSNorm(48), CountingNorm(48)])
@given(shape=st.tuples(st.integers(1, 3), st.integers(1, 150)), transposed=st.booleans())
@settings(max_examples=25)
def test_norms_give_a_vector_the_same_bits_among_any_number(
    norm: torch.nn.Module, shape: tuple[int, int], transposed: bool
) -> None:
    tiled = TiledNorm(norm)
    x = torch.randn(*shape, 48, generator=torch.Generator().manual_seed(shape[1]))
    x = x.transpose(0, 1) if transposed else x
    out = tiled(x)
    assert out.shape == x.shape
    for own, vector in zip(out.reshape(-1, 48), x.reshape(-1, 48), strict=True):
        assert torch.equal(norm(vector.expand(TILE, -1))[0], own)


def test_a_norm_that_depends_on_the_place_in_a_tile_is_refused() -> None:
    class Uneven(LlamaRMSNorm):  # type: ignore[misc]
        def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = hidden_states * (1 + 1e-6 * torch.arange(len(hidden_states))[:, None])
            return out

    with pytest.raises(UnsupportedModel, match=r"Uneven in torch.float32 depends on a row's place"):
        TiledNorm(Uneven(16))
