from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from prove_core.errors import CheckpointError
from prove_core.model.adapters import AdapterKind, BaseRecord, read_adapter
from prove_core.training.config import Method
from prove_core.training.export import export_adapter, load_proposer
from prove_core.training.layout import lay_out
from tests.core.tiny import tiny_model
from tests.core.training.examples import BLOCK_SIZE, greedy_examples, stirred_proposer, tiny_proposer


@pytest.mark.parametrize("method", [Method.GATED, Method.UNGATED])
def test_an_exported_adapter_proposes_the_same(tmp_path: Path, method: Method) -> None:
    batch = lay_out(greedy_examples(tiny_model(), 2), [[3, 9], [5]], BLOCK_SIZE)
    proposer = stirred_proposer(method=method)
    with torch.no_grad():
        for _, parameter in proposer.named_parameters():
            parameter.copy_(parameter.bfloat16())  # what the folder can hold
    export_adapter(proposer, tmp_path / "adapter", BaseRecord(name="tiny"), notes="a test")
    loaded = load_proposer(tiny_model(), tmp_path / "adapter")
    assert (loaded.config, loaded.method) == (proposer.config, method)
    with torch.no_grad():
        hidden = proposer.rows(batch).placeholders
        assert torch.equal(loaded.rows(batch).placeholders, hidden)
        assert torch.equal(loaded.corrected(hidden, batch), proposer.corrected(hidden, batch))
    record = read_adapter(str(tmp_path / "adapter")).record
    assert record is not None
    assert (record.kind, record.block_size, record.placeholder_rows) == (
        AdapterKind(method.value),
        BLOCK_SIZE,
        BLOCK_SIZE - 1,
    )
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
    with pytest.raises(CheckpointError, match="no block adapter"):
        load_proposer(tiny_model(), tmp_path / "adapter")
