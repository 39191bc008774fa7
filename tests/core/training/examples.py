"""A tiny model's own greedy answers, and a short training run on them."""

import random
from pathlib import Path

import torch
from transformers import PreTrainedModel

from prove_core.training.ar_task import ArTask
from prove_core.training.block_task import BlockTask
from prove_core.training.config import (
    AdapterConfig,
    BlockBatchConfig,
    Method,
    OptimizerConfig,
    ProposerTraining,
    VerifierTraining,
)
from prove_core.training.dataset import Example
from prove_core.training.proposer import BlockProposer
from prove_core.training.trainer import Trainer
from tests.core.tiny import VOCABULARY, tiny_model

BLOCK_SIZE = 4


@torch.no_grad()
def greedy_examples(model: PreTrainedModel, count: int, length: int = 24, seed: int = 0) -> list[Example]:
    """`count` random prompts of 4 tokens, each with the stock model's greedy answer of `length` tokens."""
    rng = random.Random(seed)
    tokens = torch.tensor([[rng.randrange(VOCABULARY) for _ in range(4)] for _ in range(count)])
    for _ in range(length):
        tokens = torch.cat((tokens, model(tokens).logits[:, -1:].argmax(-1)), 1)
    return [Example(tuple(row[:4]), tuple(row[4:])) for row in tokens.tolist()]


def counting_model(steps: int = 150) -> PreTrainedModel:
    """A tiny model taught to count upwards from the prompt's last token: its answers can be foreseen."""
    model = tiny_model().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        starts = torch.randint(0, VOCABULARY, (16, 4), generator=generator)
        tokens = torch.cat((starts, (starts[:, -1:] + 1 + torch.arange(20)) % VOCABULARY), 1)
        logits = model(tokens).logits[:, 3:-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 4:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def tiny_config(steps: int, method: Method = Method.GATED, **changes: object) -> ProposerTraining:
    """Settings under which a tiny model learns in a few seconds."""
    full = method is Method.FULL
    settings: dict[str, object] = {
        "method": method,
        "optimizer": OptimizerConfig(steps=steps, lr=1e-3 if full else 1e-2, warmup=10),
        "adapter": adapter_config(method),
        "batch": BlockBatchConfig(examples=8, rows=36, depths=(2, 3)),
        "checkpoint_seconds": 1e-6,  # at every report
        "report_steps": 10,
    }
    return ProposerTraining.model_validate(settings | changes)


def adapter_config(method: Method = Method.GATED, sequential: int = 16) -> AdapterConfig:
    """What a tiny proposer looks like."""
    full = method is Method.FULL
    return AdapterConfig(
        block_size=BLOCK_SIZE,
        rank=8,
        sequential=0 if full else sequential,
        placeholders="shared" if full else "distinct",
    )


def tiny_proposer(model: PreTrainedModel, sequential: int = 16, method: Method = Method.GATED) -> BlockProposer:
    """A fresh proposer over `model`."""
    return BlockProposer(model, adapter_config(method, sequential), method=method)


def stirred_proposer(family: str = "llama", method: Method = Method.GATED) -> BlockProposer:
    """A proposer whose B matrices and head are not zero, so that they matter."""
    proposer = tiny_proposer(tiny_model(family), method=method)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in proposer.named_parameters():
            if name.endswith(("lora_B.weight", "sequential.o", "sequential.r")):
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return proposer


def block_trainer(proposer: BlockProposer, examples: list[Example], config: ProposerTraining, folder: Path) -> Trainer:
    """A trainer of `proposer`."""
    return Trainer(BlockTask(proposer, examples, config), examples, config, config.batch, folder)


def tiny_trainer(folder: Path, steps: int, kind: str = "gated") -> Trainer:
    """Everything from scratch, as a new process would build it. `kind`: a Method, `bf16` (full) or `verifier`."""
    dtype = torch.bfloat16 if kind == "bf16" else torch.float32
    examples = greedy_examples(tiny_model(), 64)
    model = tiny_model(dtype=dtype)
    if kind == "verifier":
        config = tiny_config(steps)
        settings = VerifierTraining(optimizer=config.optimizer, rank=8, **_pace(config))
        return Trainer(ArTask(model, settings), examples, settings, config.batch, folder)
    method = Method.FULL if kind == "bf16" else Method(kind)
    return block_trainer(tiny_proposer(model, method=method), examples, tiny_config(steps, method), folder)


def _pace(config: ProposerTraining) -> dict[str, float]:
    return {"checkpoint_seconds": config.checkpoint_seconds, "report_steps": config.report_steps}
