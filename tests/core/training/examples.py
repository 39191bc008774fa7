"""A tiny model's own greedy answers, and a short training run on them."""

import random
from pathlib import Path

import torch
from transformers import PreTrainedModel

from prove_core.training.config import AdapterConfig, BatchConfig, OptimizerConfig, TrainingConfig
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


def tiny_config(steps: int) -> TrainingConfig:
    """Settings under which a tiny model learns in a few seconds."""
    return TrainingConfig(
        optimizer=OptimizerConfig(steps=steps, lr=1e-2, warmup=10),
        adapter=AdapterConfig(block_size=BLOCK_SIZE, rank=8, sequential=16),
        batch=BatchConfig(examples=8, rows=36, depths=(2, 3)),
        checkpoint_seconds=1e-6,  # at every report
        report_steps=10,
    )


def tiny_proposer(model: PreTrainedModel, sequential: int = 16) -> BlockProposer:
    """A fresh proposer over `model`."""
    return BlockProposer(model, block_size=BLOCK_SIZE, rank=8, scale=2.0, seed=0, sequential=sequential)


def stirred_proposer(family: str = "llama") -> BlockProposer:
    """A proposer whose B matrices and head are not zero, so that they matter."""
    proposer = tiny_proposer(tiny_model(family))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in proposer.named_parameters():
            if name.endswith(("lora_B.weight", "sequential.o")):
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return proposer


def tiny_trainer(folder: Path, steps: int) -> Trainer:
    """Everything from scratch, as a new process would build it."""
    model = tiny_model()
    examples = greedy_examples(model, 64)
    return Trainer(tiny_proposer(model), examples, tiny_config(steps), folder)
