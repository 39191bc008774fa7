"""The memory that a pass takes, by running it."""

import weakref

import pytest
import torch

from prove_core.engine.profile import profiled_pass, reserve
from prove_core.model.probe import probe
from tests.core.tiny import VOCABULARY, tiny_model


class OutputsMeter:
    """Counts the logits that are alive at the end; the model's own buffers are a GPU's affair."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.rows: list[int] = []
        self.outputs: list[weakref.ref[torch.Tensor]] = []
        model.get_output_embeddings().register_forward_hook(self._note)  # type: ignore[operator]
        self.started = False

    def _note(self, _: torch.nn.Module, inputs: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
        assert self.started
        self.rows.append(inputs[0].shape[1])
        self.outputs.append(weakref.ref(out))

    def start(self) -> None:
        self.started = True

    def above(self) -> int:
        assert not any(ref() is not None for ref in self.outputs), "the pass is over"
        return self.rows[-1] * VOCABULARY * 4


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_the_largest_pass_is_run_with_all_its_logits(family: str) -> None:
    model = tiny_model(family)
    probe(model)
    meter = OutputsMeter(model)
    assert profiled_pass(model, 130, meter) == 130 * VOCABULARY * 4
    assert meter.rows == [130]


def test_recorded_passes_have_memory_of_their_own() -> None:
    assert reserve(10**9, recorded=True) - reserve(10**9, recorded=False) > 10**9
    assert reserve(10**9, recorded=False) > 10**9
