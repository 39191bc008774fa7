"""Draws: their distribution, that a proposer's and a verifier's are coupled, and that a row is on its own."""

import math
import random
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prove_core.model.draw import LEADING, draw, least, scale
from prove_core.model.noise import log_noise, row_key, scatter
from prove_core.types import SamplingParams
from tests.core.sampling import chi_square, fits, warped

DRAWS = 50_000


def params(**fields: float) -> SamplingParams:
    return SamplingParams(0, **{"temperature": 1.0, **fields})  # type: ignore[arg-type]


def implied(logits: Sequence[float], how: SamplingParams) -> list[float]:
    """Probabilities as `draw` cuts them."""
    scaled = scale(torch.tensor([logits]), [(how, 0)])
    return torch.softmax(scaled.masked_fill(scaled < least(scaled, [(how, 0)]), -torch.inf), -1)[0].tolist()


def drawn(logits: Sequence[float], how: SamplingParams, indices: range) -> list[int]:
    rows = torch.tensor(logits).expand(len(indices), len(logits))
    return draw(rows, [(how, index) for index in indices], scatter(torch.arange(len(logits)))).tolist()


P = [1.2, 0.4, -0.3, 2.0, -math.inf, 0.9, -2.5, 0.1]
Q = [0.2, 1.1, 0.3, 1.4, 0.8, -math.inf, -1.5, 0.0]
CUTS = [{}, {"top_p": 0.8}, {"top_k": 3}, {"top_k": 5, "top_p": 0.8}, {"min_p": 0.2}]


def own_draw(draft: int, target: int, fresh: int) -> int:
    """The rule: the verifying model's own draw stands, and the draft is accepted where it equals that."""
    return target


def draw_again(draft: int, target: int, fresh: int) -> int:
    """A wrong one: after a mismatch the correction is drawn afresh, from p instead of what the mismatch leaves."""
    return draft if draft == target else fresh


def draft_first(draft: int, target: int, fresh: int) -> int:
    """A wrong one: the draft stands whenever any draw from p allows it."""
    return draft if draft in (target, fresh) else target


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_what_is_committed_follows_p_whatever_q_proposes(temperature: float, cut: dict[str, float]) -> None:
    how = params(temperature=temperature, seed=11, **cut)
    drafts = drawn(Q, how, range(DRAWS))
    targets = drawn(P, how, range(DRAWS))
    expected = [share * DRAWS for share in warped(P, how)]
    assert implied(P, how) == pytest.approx(warped(P, how), abs=1e-6)

    fresh = drawn(P, params(temperature=temperature, seed=12, **cut), range(DRAWS))

    def committed(rule: Callable[[int, int, int], int]) -> list[int]:
        return [rule(*triple) for triple in zip(drafts, targets, fresh, strict=True)]

    assert fits(*chi_square(committed(own_draw), expected))
    for wrong in (draw_again, draft_first):
        assert not fits(*chi_square(committed(wrong), expected)), f"{wrong.__name__} would go unnoticed"


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
def test_shared_noise_makes_models_that_agree_draw_alike(temperature: float) -> None:
    """P(same id) is known: sum over x of 1 / sum over y of max(p(y)/p(x), q(y)/q(x)); of two draws apart it is less."""
    how = params(temperature=temperature, seed=3)
    p, q = warped(P, how), warped(Q, how)
    both = [i for i in range(len(P)) if p[i] and q[i]]
    coupled = sum(1 / sum(max(p[y] / p[x], q[y] / q[x]) for y in range(len(p))) for x in both)
    same = sum(map(int.__eq__, drawn(P, how, range(DRAWS)), drawn(Q, how, range(DRAWS)))) / DRAWS
    assert same == pytest.approx(coupled, abs=0.01)
    assert same > sum(a * b for a, b in zip(p, q, strict=True)) + 0.1


def test_successive_indices_seeds_and_ids_are_independent() -> None:
    """Pairs of draws fill the square of their values evenly: neighbours in index, in seed, and in both."""
    logits = [0.0] * 16
    first = drawn(logits, params(seed=1), range(DRAWS))
    for other in (first[1:] + first[:1], drawn(logits, params(seed=2), range(DRAWS))):
        pairs = [a * 16 + b for a, b in zip(first, other, strict=True)]
        assert fits(*chi_square(pairs, [DRAWS / 256] * 256))


def test_a_wide_vocabulary_is_drawn_from_fairly() -> None:
    """49152 ids, half the probability on 2 of them and the rest even: the tail is hit as often as it should be."""
    count = 49_152
    logits = torch.zeros(1, count)
    logits[0, [7, 40_000]] = math.log(count / 2)
    ids = scatter(torch.arange(count))
    hits = [int(draw(logits, [(params(seed=5), index)], ids)) for index in range(2000)]
    tail = [hit for hit in hits if hit not in (7, 40_000)]
    assert fits(*chi_square([{7: 0, 40_000: 1}.get(hit, 2) for hit in hits], [500, 500, 1000]))
    assert fits(*chi_square([hit * 8 // count for hit in tail], [len(tail) / 8] * 8))


def test_noise_is_finite_and_exponential() -> None:
    keys = torch.tensor([row_key(9, index) for index in range(64)], dtype=torch.int32)
    noise = log_noise(scatter(torch.arange(50_000)), keys)
    assert noise.isfinite().all()
    values = noise.exp().double()
    assert values.mean().item() == pytest.approx(1, abs=0.004)
    assert (values < 0.01).double().mean().item() == pytest.approx(1 - math.exp(-0.01), rel=0.03)
    assert (values > 5).double().mean().item() == pytest.approx(math.exp(-5), rel=0.03)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([1, 2, 40, LEADING[0] + 700, LEADING[1] + 9]),
    st.floats(0.3, 2),
    st.sampled_from([0, 1, 2, 7, 33, LEADING[0] + 5]),
    st.sampled_from([0.05, 0.5, 0.9, 0.999, 1.0]),
    st.sampled_from([0.0, 0.01, 0.3, 1.0]),
)
def test_cuts_equal_the_reference(seed: int, width: int, t: float, top_k: int, top_p: float, min_p: float) -> None:
    source = random.Random(seed)
    spread = source.choice([0.01, 1, 4])
    logits = [source.gauss(0, spread) if source.random() > 0.2 else -math.inf for _ in range(width)]
    logits[source.randrange(width)] = 1.0

    def how(share: float) -> SamplingParams:
        return params(temperature=t, top_k=top_k, top_p=share, min_p=min_p)

    found = implied(logits, how(top_p))
    # float32 sums may put the edge of the nucleus one id further or nearer
    edges = [warped(logits, how(min(1, share))) for share in (top_p, top_p - 1e-5, top_p + 1e-5)]
    assert any(found == pytest.approx(expected, abs=1e-5, rel=1e-3) for expected in edges)


def test_a_row_is_drawn_alike_alone_and_among_others() -> None:
    rows = torch.randn(40, 3000, generator=torch.Generator().manual_seed(0)) * 3
    asks = [(params(top_p=0.3 + 0.015 * i, top_k=(i % 3) * 50, seed=i, temperature=0.5 + i / 40), i) for i in range(40)]
    ids = scatter(torch.arange(3000))
    together = draw(rows, asks, ids).tolist()
    alone = [draw(rows[i : i + 1], asks[i : i + 1], ids).item() for i in range(40)]
    assert together == alone
    cut = scale(rows, asks)
    for i in range(40):
        assert torch.equal(least(cut, asks)[i], least(cut[i : i + 1], asks[i : i + 1])[0])


@pytest.mark.parametrize("temperature", [2e-5, 1e-3, 2.0])
def test_a_single_candidate_is_certain(temperature: float) -> None:
    for cut in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}):
        assert set(drawn(P, params(temperature=temperature, **cut), range(50))) == {3}
    assert set(drawn(P, params(temperature=2e-5), range(50))) == {3}


def test_candidates_are_drawn_as_columns_of_a_whole_row() -> None:
    """The noise belongs to the id: a row cut down to some ids, in any order, is drawn alike."""
    order = [6, 3, 0, 5, 1]
    ids = scatter(torch.tensor([order]))
    masked = [value if i in order else -math.inf for i, value in enumerate(P)]
    for index in range(200):
        ask = [(params(seed=4), index)]
        few = draw(torch.tensor([[P[i] for i in order]]), ask, ids)
        assert order[few.item()] == draw(torch.tensor([masked]), ask, scatter(torch.arange(len(P)))).item()  # type: ignore[call-overload]
