"""Penalties and biases against a slow reference, on whole rows and on a few candidates."""

import random
from functools import reduce

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prove_core.model.penalties import Occurrences, adjust, adjust_candidates
from prove_core.types import SamplingParams
from tests.core.sampling import penalized

WIDTH = 12


@settings(max_examples=150, deadline=None)
@given(
    tokens=st.lists(st.integers(0, WIDTH + 3), max_size=20),
    prompt=st.integers(0, 20),
    added=st.lists(st.integers(0, WIDTH + 3), max_size=6),
    repetition=st.sampled_from([1.0, 0.5, 1.3, 2.0]),
    presence=st.sampled_from([0.0, -2.0, 1.5]),
    frequency=st.sampled_from([0.0, -0.7, 2.0]),
    bias=st.dictionaries(st.integers(0, WIDTH + 3), st.floats(-100, 100), max_size=4),
)
def test_rows_and_candidates_equal_the_penalized(
    tokens: list[int],
    prompt: int,
    added: list[int],
    repetition: float,
    presence: float,
    frequency: float,
    bias: dict[int, float],
) -> None:
    prompt = min(prompt, len(tokens))
    how = SamplingParams(
        prompt,
        repetition_penalty=repetition,
        presence_penalty=presence,
        frequency_penalty=frequency,
        logit_bias=tuple(bias.items()),
    )
    source = random.Random(len(tokens))
    row = [source.gauss(0, 3) for _ in range(WIDTH)]
    row[source.randrange(WIDTH)] = -torch.inf
    before = reduce(Occurrences.then, added, Occurrences.of(tuple(tokens), prompt))
    expected = penalized(row, [*tokens, *added], how)
    found = torch.tensor(row)
    adjust(found, how, before)
    assert found.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)
    ids = torch.tensor(source.sample(range(WIDTH), 5))
    few = torch.tensor(row)[ids]
    adjust_candidates(few, ids, how, before)
    assert few.tolist() == found[ids].tolist()
