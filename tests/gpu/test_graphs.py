"""Recorded passes against eager ones, with real CUDA graphs."""

import random
from typing import Any

import pytest

from prove_core.model.graphs import CudaRecorder
from prove_core.model.runner import ModelRunner
from prove_core.model.shapes import PassKind
from tests.core.model.test_graphs import SHAPES, compare_runners, runner_of, windows_of

Runners = tuple[ModelRunner, ModelRunner]


@pytest.fixture(scope="module")
def runners(flashinfer: Any) -> Runners:
    recorded = runner_of(SHAPES, flashinfer, CudaRecorder, "cuda")
    assert len(recorded._recorded) == len(SHAPES)
    return recorded, runner_of([], flashinfer, CudaRecorder, "cuda")


@pytest.mark.parametrize("kind", PassKind, ids=lambda kind: kind.name)
def test_replayed_passes_equal_eager_ones(runners: Runners, kind: PassKind) -> None:
    """Many shapes after one another: nothing of one pass is left in the next."""
    drawing = random.Random(kind)
    for _ in range(25):
        drawn = []
        for _ in range(drawing.randint(1, 4)):
            cached, tokens = drawing.randint(0, 12), drawing.randint(1, 4)
            groups = {PassKind.PLAIN: (), PassKind.PROPOSING: (3,), PassKind.TREE: (1, 2)}[kind]
            drawn.append((cached, tokens, groups, False))
        compare_runners(*runners, windows_of(drawn))


def test_shapes_beyond_the_recorded_ones_run_eagerly(runners: Runners) -> None:
    compare_runners(*runners, windows_of([(0, 6, (), False)] * 12))
    compare_runners(*runners, windows_of([(4, 60, (), True)]))
