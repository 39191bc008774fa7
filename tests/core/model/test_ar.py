"""The runner's greedy continuation is transformers' own."""

import pytest
import torch

from tests.core.tiny import FAMILIES, VOCABULARY, greedy, tiny_model, tiny_runner


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_ar_equals_generate(family: str, chunk: int) -> None:
    model = tiny_model(family)
    prompt = torch.randint(0, VOCABULARY, (1, 13), generator=torch.Generator().manual_seed(1))
    expected = model.generate(prompt, do_sample=False, max_new_tokens=24)[0, 13:].tolist()
    assert len(set(expected)) > 3
    scattered = torch.randperm(128, generator=torch.Generator().manual_seed(2)).tolist()
    assert greedy(tiny_runner(model), prompt[0].tolist(), 24, pages=scattered, chunk=chunk) == expected
