import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prove_core.training.losses import PositionWeights, Teacher, evenly, head_loss


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 5), st.floats(0, 1), st.integers(0, 99))
def test_loss_and_gradient_equal_plain_cross_entropy(
    blocks: int, width: int, chunk: int, reach: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(blocks, width, 8, generator=generator).requires_grad_()
    head = torch.randn(13, 8, generator=generator)
    targets = torch.randint(-1, 13, (blocks, width), generator=generator)
    weigh = PositionWeights(0.85, reach)
    result = head_loss(hidden, head, targets, weigh, chunk=chunk)

    logits = hidden @ head.T
    known = targets >= 0
    nll = -torch.log_softmax(logits, -1).gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    weights = weigh(torch.where(known, (-nll).exp(), 0.0).detach())
    expected = (nll * weights * known).sum() / known.sum().clamp(min=1)
    torch.testing.assert_close(result.loss, expected)
    torch.testing.assert_close(result.nll[known], nll.detach()[known])
    assert torch.equal(result.match, (logits.argmax(-1) == targets) & known)
    torch.testing.assert_close(torch.autograd.grad(result.loss, hidden), torch.autograd.grad(expected, hidden))


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=6))
def test_reach_is_the_gradient_of_the_expected_prefix(values: list[float]) -> None:
    log_p = torch.tensor(values).log().requires_grad_()
    expected_prefix = 1 + log_p.exp().cumprod(0).sum()
    (gradient,) = torch.autograd.grad(expected_prefix, log_p)
    weights = PositionWeights(0.5, reach=1.0)(torch.tensor([values]))
    torch.testing.assert_close(weights[0], gradient)


def test_decay_alone_ignores_the_probabilities() -> None:
    weights = PositionWeights(0.5, reach=0.0)(torch.tensor([[0.1, 0.9, 0.0]]))
    assert weights.tolist() == [[1.0, 0.5, 0.25]]


def test_a_batch_without_targets_has_loss_zero_and_no_gradient() -> None:
    hidden = torch.randn(2, 3, 4, requires_grad=True)
    result = head_loss(hidden, torch.randn(5, 4), torch.full((2, 3), -1), PositionWeights(0.85, 0.5))
    result.loss.backward()
    assert result.loss.item() == 0.0
    assert hidden.grad is not None
    assert not hidden.grad.any()
    assert not result.match.any()


def test_bfloat16_rows_stay_close_to_float32() -> None:
    torch.manual_seed(0)
    hidden, head = torch.randn(4, 7, 64), torch.randn(300, 64) * 0.3
    targets = torch.randint(0, 300, (4, 7))
    weigh = PositionWeights(0.85, 0.5)
    exact = head_loss(hidden, head, targets, weigh).loss.item()
    assert head_loss(hidden.bfloat16(), head.bfloat16(), targets, weigh).loss.item() == pytest.approx(exact, rel=0.02)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 5), st.floats(0, 1), st.integers(0, 99))
def test_a_teacher_and_a_trained_head_equal_autograd(blocks: int, width: int, chunk: int, kl: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(blocks, width, 8, generator=generator).requires_grad_()
    head = torch.randn(13, 8, generator=generator).requires_grad_()
    taught = torch.randn(blocks, width, 8, generator=generator)
    targets = torch.randint(-1, 13, (blocks, width), generator=generator)
    result = head_loss(hidden, head, targets, evenly, teacher=Teacher(taught, kl), chunk=chunk)

    known = targets >= 0
    log_p = torch.log_softmax(hidden @ head.T, -1)
    wanted = kl * torch.softmax(taught @ head.detach().T, -1)
    wanted = wanted.scatter_add(-1, targets.clamp(min=0)[..., None], torch.full((blocks, width, 1), 1 - kl))
    expected = -((wanted * log_p).sum(-1) * known).sum() / known.sum().clamp(min=1)
    torch.testing.assert_close(result.loss, expected)
    found = torch.autograd.grad(result.loss, (hidden, head))
    torch.testing.assert_close(found, torch.autograd.grad(expected, (hidden, head)))
