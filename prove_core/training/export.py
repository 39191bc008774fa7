"""From a run's weights to a folder that an engine loads, and back."""

import shutil
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from prove_core.errors import CheckpointError
from prove_core.model.adapters import AdapterKind, AdapterRecord, BaseRecord, read_adapter, save_adapter
from prove_core.training.ar_task import ArTask
from prove_core.training.config import AdapterConfig, Method
from prove_core.training.proposer import PLACEHOLDER, SEQUENTIAL, BlockProposer


def export_adapter(
    proposer: BlockProposer,
    folder: Path,
    base: BaseRecord,
    *,
    layers: tuple[int, ...] | None = None,
    placeholder: str | None = None,
    notes: str = "",
) -> None:
    """Write the trained tensors of a LoRA proposer in bfloat16, replacing `folder` as a whole.

    `layers`: the base's decoder layers that the model has, None for all. `placeholder`: the token that stands for
    positions to predict, if it is not the base's own.
    """
    config = proposer.config
    tensors = {name: parameter.detach().to(torch.bfloat16) for name, parameter in proposer.named_parameters()}
    record = AdapterRecord(
        kind=AdapterKind(proposer.method.value),
        base=base,
        layers=layers,
        placeholder=placeholder,
        block_size=config.block_size,
        notes=notes,
    )
    table = tensors.pop(PLACEHOLDER)
    names = [name for name in tensors if name.startswith(SEQUENTIAL)]
    head = {name.removeprefix(SEQUENTIAL): tensors.pop(name) for name in names}
    alpha = config.scale * config.rank
    save_adapter(folder, tensors, record, rank=config.rank, alpha=alpha, placeholder=table, sequential=head or None)


def export_verifier(task: ArTask, folder: Path, base: BaseRecord, layers: tuple[int, ...] | None) -> None:
    """Write the LoRA matrices of AR fine-tuning in bfloat16, replacing `folder` as a whole.

    `layers`: the base's decoder layers that the model has, None for all.
    """
    tensors = {name: parameter.detach().to(torch.bfloat16) for name, parameter in task.named_parameters()}
    record = AdapterRecord(kind=AdapterKind.UNGATED, base=base, layers=layers)
    save_adapter(folder, tensors, record, rank=task.config.rank, alpha=task.config.scale * task.config.rank)


def export_checkpoint(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path, proposer: BlockProposer | None = None
) -> None:
    """Write a fully trained model as a checkpoint folder, replacing it.

    Of a proposer, the placeholder's embedding goes into its row, and its token becomes the tokenizer's mask token: that
    is how the folder says which token stands for a position to predict.
    """
    work = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(work, ignore_errors=True)
    if proposer is not None:
        token = tokenizer.mask_token
        if token is None:
            raise CheckpointError("the tokenizer has no mask token to stand for a placeholder")
        with torch.no_grad():
            row = proposer.placeholder[0].to(model.dtype)
            proposer.backbone.embedding.weight[tokenizer.convert_tokens_to_ids(token)] = row
    model.save_pretrained(work)
    tokenizer.save_pretrained(work)
    shutil.rmtree(folder, ignore_errors=True)
    work.rename(folder)


def load_proposer(model: PreTrainedModel, folder: Path, config: AdapterConfig | None = None) -> BlockProposer:
    """`model` (changed in place) with the block adapter of `folder`, to measure it or to train it further.

    `config`, if given, may ask for a higher rank, or for a wider head where the folder's is not recurrent (`r` is
    zero): both are added so that they change nothing. Of a higher rank than `config`'s, the largest singular values of
    every B A are kept. Raises CheckpointError when the folder is no block adapter or does not fit.
    """
    adapter = read_adapter(str(folder))
    table = adapter.placeholder_table()
    if adapter.record is None or adapter.record.block_size is None or table is None:
        raise CheckpointError(f"adapter {folder} is no block adapter: it has no placeholder embeddings of its own")
    head = adapter.sequential_head()
    if config is None:
        config = AdapterConfig(
            block_size=adapter.record.block_size,
            rank=adapter.settings.r,
            scale=adapter.settings.scale,
            sequential=0 if head is None else len(head.a),
            placeholders="shared" if len(table) == 1 else "distinct",
        )
    elif config.scale != adapter.settings.scale:
        raise CheckpointError(f"adapter {folder} has scale {adapter.settings.scale}: set adapter.scale to it")
    proposer = BlockProposer(model, config, method=Method(adapter.kind.value))
    trained = {} if head is None else {SEQUENTIAL + name: tensor for name, tensor in head.state_dict().items()}
    proposer.load({**adapter.tensors(), **trained, PLACEHOLDER: table})
    return proposer
