"""The compiled walk down rows that an earlier one has kept: as in torch, and with the bits of the rows themselves."""

from array import array
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from prove_core.model.cache import home
from prove_core.model.in_use import InUse
from prove_core.model.native import library
from prove_core.model.native.walk import NativeWalk
from prove_core.model.recall import Recall
from prove_core.model.refine import Refiner, Walked
from prove_core.model.window import PlaceholderGroup, Remnant, Window, WindowOutput
from tests.core.model.test_native import assert_alternatives, compiled, head

HIDDEN, WIDTH, IDS = 96, 160, 100
RECALL = Recall((2.0, 1.0, 3.0), 1.5)
BEFORE = tuple(range(60, 90)) * 2


def refiners(recall: Recall | None) -> tuple[Refiner, Refiner, NativeWalk, Tensor]:
    """With compiled walks and without, the walk itself, and the model's head."""
    compiled()
    made = head(HIDDEN, WIDTH, torch.bfloat16)
    generator = torch.Generator().manual_seed(3)
    embedding = nn.Embedding(IDS, HIDDEN, _weight=torch.randn(IDS, HIDDEN, generator=generator).to(torch.bfloat16))
    output = (torch.randn(IDS, HIDDEN, generator=generator) / 4).to(torch.bfloat16)
    walk = NativeWalk(library.library(home()), made, embedding.weight, output, recall)
    compiled_one = Refiner(made, embedding, output, alone=False, recall=recall, walk=walk)
    return compiled_one, Refiner(made, embedding, output, alone=False, recall=recall), walk, output


def rows(count: int, output: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """States and logits."""
    states = torch.randn(count, HIDDEN, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)
    return states, (states @ output.T).float()


@pytest.mark.parametrize("recall", [None, RECALL])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_left_is_walked_as_in_torch(recall: Recall | None, seed: int) -> None:
    """Three passes of windows of which some propose anew, some little, some nothing."""
    ours, theirs, _, output = refiners(recall)
    texts = [[*BEFORE], [*BEFORE, 61], [*BEFORE, 7, 62]]
    passes = [(7, 5, 6), (0, 2, 0), (1, 0, 0)]  # placeholders of each window
    left: dict[Refiner, list[Remnant | None]] = {ours: [None] * 3, theirs: [None] * 3}
    for number, counts in enumerate(passes):
        said = [tuple((17 * seed + 5 * number + 3 * i + k) % 20 + 60 for k in range(1 + i % 2)) for i in range(3)]
        groups = [(PlaceholderGroup(0, count),) if count else () for count in counts]
        windows = [
            Window([text[-1], *own[:-1]], len(text) - 1, (), made, len(own), own[:-1], before=text[:-1], keeps=True)
            for text, own, made in zip(texts, said, groups, strict=True)
        ]
        states, logits = rows(sum(window.outputs for window in windows), output, 10 * seed + number)
        plain = [WindowOutput(own, (0.5,) * len(own), ()) for own in said]
        found = {}
        for refiner, remnants in left.items():
            given = [replace(window, remnant=each) for window, each in zip(windows, remnants, strict=True)]
            with torch.inference_mode():
                found[refiner] = refiner.refine(states, logits, given, plain)
            left[refiner] = [each.remnant for each in found[refiner]]
        for a, b in zip(found[ours], found[theirs], strict=True):
            assert a.drafts == b.drafts
            assert a.draft_confidences == pytest.approx(b.draft_confidences, abs=0.1)  # scores in bfloat16
            assert_alternatives(a.alternatives, b.alternatives, a.draft_confidences)
            assert (a.remnant is None) == (b.remnant is None)
            if a.remnant is not None and b.remnant is not None:
                assert (a.remnant.index, a.remnant.count) == (b.remnant.index, b.remnant.count)
        texts = [[*text, *own] for text, own in zip(texts, said, strict=True)]
    assert any(each.drafts for each in found[ours])


def same(a: Walked, b: Walked) -> bool:
    return (a.ids, a.confidences, a.alternatives) == (b.ids, b.confidences, b.alternatives)


def kept(walked: Walked) -> Remnant:
    assert walked.remnant is not None
    return walked.remnant


def walker(walk: NativeWalk, count: int, output: Tensor, seed: int) -> Callable[[InUse], Walked]:
    """Walks a block alone or, to the same end, among others."""
    states, logits = rows(count, output, seed)

    def down(block: InUse) -> Walked:
        (alone,) = walk(states, logits, [block])
        other = InUse(0, 1, 3, 0, array("i", BEFORE), keeps=True)
        _, among, _ = walk(states, logits, [other, block, other])
        assert same(alone, among)
        if block.keeps:
            assert bytes(kept(alone).rows) == bytes(kept(among).rows)  # type: ignore[call-overload]
        return alone

    return down


@pytest.mark.parametrize("recall", [None, RECALL])
@pytest.mark.parametrize("seed", range(3))
def test_rows_that_were_kept_have_the_bits_of_the_rows_themselves(recall: Recall | None, seed: int) -> None:
    _, _, walk, output = refiners(recall)
    down = walker(walk, 12, output, seed)
    context = array("i", BEFORE)
    first = down(InUse(0, 2, 8, len(context), context, keeps=True))
    left = kept(first)
    for known in range(8):
        longer = array("i", [*context, *[(7 * known + 3 * i + seed) % 30 + 60 for i in range(known)]])
        own = InUse(0, 2, 8, len(context), longer, known)
        again = InUse(0, 0, 0, len(context), longer, known, tail=left)
        assert same(down(own), down(again))
        assert len(down(again).ids) == 8 - known
    for rows_before in (1, 3):  # a newer group before them, and what is kept of both
        newer = InUse(0, 10 - rows_before, rows_before, 50, context, 0, tail=left, tail_first=5, keeps=True)
        joined = down(newer)
        assert len(joined.ids) == rows_before + 3
        assert same(joined, down(replace(newer, keeps=False)))
        both = kept(joined)
        for known in range(rows_before + 3):
            longer = array("i", [*context, *range(30, 30 + known)])
            again = InUse(0, 0, 0, 50, longer, known, tail=both)
            assert same(down(again), down(replace(newer, context=longer, known=known, keeps=False)))


def test_what_came_true_is_gone_on_with_as_before() -> None:
    """Tokens that were committed as proposed leave the others, and their alternatives, as they were."""
    _, _, walk, output = refiners(RECALL)
    down = walker(walk, 9, output, 4)
    context = array("i", BEFORE)
    first = down(InUse(0, 1, 8, len(context), context, keeps=True))
    for known in range(8):
        longer = array("i", [*context, *first.ids[:known]])
        again = down(InUse(0, 0, 0, len(context), longer, known, tail=kept(first)))
        assert (again.ids, again.confidences) == (first.ids[known:], first.confidences[known:])
