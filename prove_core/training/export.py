"""From a proposer in training to an adapter folder that an engine loads, and back."""

from pathlib import Path

import torch
from transformers import PreTrainedModel

from prove_core.errors import CheckpointError
from prove_core.model.adapters import AdapterKind, AdapterRecord, BaseRecord, read_adapter, save_adapter
from prove_core.training.proposer import PLACEHOLDER, SEQUENTIAL, BlockProposer


def export_adapter(proposer: BlockProposer, folder: Path, base: BaseRecord, notes: str = "") -> None:
    """Write the trained tensors in bfloat16, replacing `folder` as a whole."""
    tensors = {name: parameter.detach().to(torch.bfloat16) for name, parameter in proposer.named_parameters()}
    record = AdapterRecord(kind=AdapterKind.GATED, base=base, block_size=proposer.block_size, notes=notes)
    placeholder = tensors.pop(PLACEHOLDER)
    names = [name for name in tensors if name.startswith(SEQUENTIAL)]
    head = {name.removeprefix(SEQUENTIAL): tensors.pop(name) for name in names}
    alpha = proposer.scale * proposer.rank
    save_adapter(
        folder, tensors, record, rank=proposer.rank, alpha=alpha, placeholder=placeholder, sequential=head or None
    )


def load_proposer(model: PreTrainedModel, folder: Path) -> BlockProposer:
    """`model` (changed in place) with the gated adapter of `folder`, to measure it or to train it further.

    Raises CheckpointError when the folder is no gated block adapter or does not fit the model.
    """
    adapter = read_adapter(str(folder))
    table = adapter.placeholder_table()
    if adapter.kind is not AdapterKind.GATED or table is None:
        raise CheckpointError(
            f"adapter {folder} is no gated block adapter: it has no placeholder embeddings of its own"
        )
    settings = adapter.settings
    head = adapter.sequential_head()
    proposer = BlockProposer(
        model,
        block_size=len(table) + 1,
        rank=settings.r,
        scale=settings.scale,
        seed=0,
        sequential=0 if head is None else len(head.a),
    )
    trained = {} if head is None else {SEQUENTIAL + name: tensor for name, tensor in head.state_dict().items()}
    proposer.load({**adapter.tensors(), **trained, PLACEHOLDER: table})
    return proposer
