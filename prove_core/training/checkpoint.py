"""Training checkpoints: one safetensors file, replaced atomically, so that a killed run finds the last whole one."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from prove_core.errors import CheckpointError

FILE = "checkpoint.safetensors"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A run after `step` optimizer steps: trained tensors, AdamW's moments under the same names, answer tokens seen."""

    step: int
    answer_tokens: int
    parameters: Mapping[str, Tensor]
    first_moments: Mapping[str, Tensor]
    second_moments: Mapping[str, Tensor]

    def save(self, folder: Path) -> None:
        """Write to `folder`/checkpoint.safetensors; a kill at any instant leaves the old file or the new one."""
        groups = {"parameter": self.parameters, "first": self.first_moments, "second": self.second_moments}
        tensors = {
            f"{group}/{name}": t.detach().contiguous() for group, named in groups.items() for name, t in named.items()
        }
        part = folder / (FILE + ".part")
        save_file(tensors, part, {"step": str(self.step), "answer_tokens": str(self.answer_tokens)})
        os.replace(part, folder / FILE)


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The last checkpoint in `folder`, or None when there is none yet. Raises CheckpointError if it cannot be read."""
    path = folder / FILE
    if not path.exists():
        return None
    groups: dict[str, dict[str, Tensor]] = {"parameter": {}, "first": {}, "second": {}}
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            for key in list(file.keys()):
                group, _, name = key.partition("/")
                groups[group][name] = file.get_tensor(key)
        step, tokens = int(metadata["step"]), int(metadata["answer_tokens"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is no training checkpoint: {error}") from error
    return Checkpoint(step, tokens, groups["parameter"], groups["first"], groups["second"])
