"""AR fine-tuning on answers: of a verifier on its proposer's generations, or of a proposer before block training."""

from collections.abc import Iterator, Sequence

import torch
from torch import nn
from transformers import PreTrainedModel

from prove_core.training.backbone import Backbone
from prove_core.training.config import Method, VerifierTraining
from prove_core.training.dataset import Example
from prove_core.training.layout import pad
from prove_core.training.losses import evenly, head_loss
from prove_core.training.task import Pass


class ArTask:
    """Next-token cross-entropy on the answers' tokens. `model` is changed in place."""

    is_block = False
    positions = 1

    def __init__(self, model: PreTrainedModel, config: VerifierTraining) -> None:
        generator = torch.Generator().manual_seed(config.seed)
        self.config = config
        lora = None if config.method is Method.FULL else (config.rank, config.scale)
        self.backbone = Backbone(model, lora, generator)
        self.backbone.gate.open = True
        self.backbone.use_attention("sdpa")

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """LoRA matrices or the model's weights."""
        return self.backbone.named_parameters()

    def is_fast(self, name: str) -> bool:
        """Nothing starts from nothing here."""
        return False

    def run(self, examples: Sequence[Example], index: int) -> Pass:
        """All answer tokens of the batch."""
        batch = pad(examples).to(self.backbone.head.device)
        out = self.backbone.decoder(input_ids=batch.tokens, use_cache=False)
        known = batch.targets >= 0
        targets = batch.targets[known][:, None]
        result = head_loss(out.last_hidden_state[known][:, None], self.backbone.head, targets, evenly, chunk=64)
        return Pass(result.loss, result.nll, result.match, targets >= 0)
