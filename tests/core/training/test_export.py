from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from prove_core.errors import CheckpointError
from prove_core.model.adapters import AdapterKind, BaseRecord, read_adapter
from prove_core.training.export import export_adapter, load_proposer
from prove_core.training.layout import lay_out
from tests.core.tiny import tiny_model
from tests.core.training.examples import BLOCK_SIZE, greedy_examples, stirred_proposer, tiny_proposer


def test_an_exported_adapter_proposes_the_same(tmp_path: Path) -> None:
    batch = lay_out(greedy_examples(tiny_model(), 2), [[3, 9], [5]], BLOCK_SIZE)
    proposer = stirred_proposer()
    with torch.no_grad():
        for _, parameter in proposer.named_parameters():
            parameter.copy_(parameter.bfloat16())  # what the folder can hold
    export_adapter(proposer, tmp_path / "adapter", BaseRecord(name="tiny"), notes="a test")
    loaded = load_proposer(tiny_model(), tmp_path / "adapter")
    assert (loaded.rank, loaded.scale, loaded.block_size) == (proposer.rank, proposer.scale, proposer.block_size)
    with torch.no_grad():
        hidden = proposer.hidden(batch)
        assert torch.equal(loaded.hidden(batch), hidden)
        assert torch.equal(loaded.corrected(hidden, batch), proposer.corrected(hidden, batch))
    record = read_adapter(str(tmp_path / "adapter")).record
    assert record is not None
    assert (record.kind, record.block_size, record.placeholder_rows) == (AdapterKind.GATED, BLOCK_SIZE, BLOCK_SIZE - 1)
    assert record.sequential == 16


def test_an_adapter_without_a_sequential_head(tmp_path: Path) -> None:
    export_adapter(tiny_proposer(tiny_model(), sequential=0), tmp_path / "adapter", BaseRecord(name="tiny"))
    assert not (tmp_path / "adapter" / "sequential.safetensors").exists()
    assert load_proposer(tiny_model(), tmp_path / "adapter").sequential is None


def test_a_damaged_sequential_head_is_an_error(tmp_path: Path) -> None:
    export_adapter(stirred_proposer(), tmp_path / "adapter", BaseRecord(name="tiny"))
    save_file({"a": torch.zeros(3, 64)}, tmp_path / "adapter" / "sequential.safetensors")
    with pytest.raises(CheckpointError, match=r"sequential\.safetensors"):
        load_proposer(tiny_model(), tmp_path / "adapter")


def test_a_plain_peft_adapter_is_no_proposer(tmp_path: Path) -> None:
    export_adapter(stirred_proposer(), tmp_path / "adapter", BaseRecord(name="tiny"))
    (tmp_path / "adapter" / "prove.json").unlink()
    with pytest.raises(CheckpointError, match="no gated block adapter"):
        load_proposer(tiny_model(), tmp_path / "adapter")
