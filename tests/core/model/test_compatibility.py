"""Proposer and verifier must mean the same by every token id that either may emit."""

from pathlib import Path

import pytest

from prove_core.config import ModelConfig
from prove_core.errors import IncompatibleModels
from prove_core.model.compatibility import check_compatible
from prove_core.model.info import CheckpointInfo, read_info
from tests.core.model.checkpoints import save_llama, save_mars


def info(folder: Path) -> CheckpointInfo:
    return read_info(ModelConfig(checkpoint=str(folder)))


def refusal(one: CheckpointInfo, other: CheckpointInfo) -> str:
    for pair in ((one, other), (other, one)):
        with pytest.raises(IncompatibleModels) as caught:
            check_compatible(*pair)
        assert "\n" not in str(caught.value)
    return str(caught.value)


def test_logits_wider_than_the_tokenizer(tmp_path: Path) -> None:
    """Released sizes of one family differ in the width of their logits, and the proposer alone has a placeholder."""
    proposer = info(save_mars(tmp_path / "proposer", width=300))
    verifier = info(save_llama(tmp_path / "verifier", width=272))
    check_compatible(proposer, verifier)
    assert proposer.placeholder_id == 259
    assert set(range(259, 300)) == set(proposer.banned_ids)
    assert set(range(259, 272)) == set(verifier.banned_ids)


def test_same_sizes_other_tokens(tmp_path: Path) -> None:
    one, other = info(save_llama(tmp_path / "one")), info(save_llama(tmp_path / "other", swap=True))
    assert "2 of 259 ids differ" in refusal(one, other)


def test_tokens_that_one_lacks(tmp_path: Path) -> None:
    one, other = info(save_llama(tmp_path / "one")), info(save_llama(tmp_path / "other", extra=("<tool>",)))
    assert "'<tool>'" in refusal(one, other)
