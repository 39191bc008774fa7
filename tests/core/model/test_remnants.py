"""What is left of a block goes on in the next passes: step by step with the head's own definition."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from prove_core.model.draw import draw
from prove_core.model.head_walk import PreparedRows
from prove_core.model.noise import scatter
from prove_core.model.recall import Recall, contexts, match_features
from prove_core.model.refine import Refiner
from prove_core.model.sequential import CANDIDATES
from prove_core.model.window import PlaceholderGroup, Remnant, Window, WindowOutput
from prove_core.types import SamplingParams
from tests.core.model.test_refine import HIDDEN, stirred_head
from tests.core.sampling import penalized
from tests.core.tiny import VOCABULARY, tiny_model, tiny_runner

IDS = 50
RECALL = Recall((30.0, 20.0), 10.0)


@dataclass(frozen=True)
class Placeholder:
    """A row of a pass: its state [1, hidden] and logits [1, IDS], and its place in its group."""

    hidden: Tensor
    logits: Tensor
    ordinal: int


class Text:
    """One sequence, a window at a time: whatever is committed, at random, is what the model says."""

    def __init__(self, sampling: SamplingParams | None = None, recall: Recall | None = None, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.head, self.embedding = stirred_head(), torch.nn.Embedding(IDS, HIDDEN)
        self.output = torch.randn(IDS, HIDDEN)
        self.recall = recall
        self.refiner = Refiner(self.head, self.embedding, self.output, alone=False, recall=recall)
        self.sampling = sampling
        self.tokens: list[int] = torch.randint(0, IDS, (30,)).tolist()
        self.remnant: Remnant | None = None

    def read(
        self, committed: int, groups: Sequence[tuple[int, int]] = (), *, keeps: bool = True
    ) -> tuple[WindowOutput, dict[int, list[Placeholder]]]:
        """A window commits so many tokens; groups are pairs of the stop that they stand behind and a count.

        Also each group's rows, by the stop.
        """
        own = tuple(torch.randint(0, IDS, (committed,)).tolist())
        start, self.tokens, before = len(self.tokens) - 1, [*self.tokens, *own], self.tokens[:-1]
        made = tuple([PlaceholderGroup(stop, count) for stop, count in groups])
        tokens = [*self.tokens[start:-1]]
        more = {"sampling": self.sampling, "before": before, "keeps": keeps, "remnant": self.remnant}
        window = Window(tokens, start, (), made, committed, own[:-1], **more)  # type: ignore[arg-type]
        hidden = torch.randn(window.outputs, HIDDEN)
        logits = functional.linear(hidden, self.output)
        plain = WindowOutput(own, (0.5,) * committed, ())
        (found,) = self.refiner.refine(hidden, logits, [window], [plain])
        assert (found.argmax, found.confidences) == (plain.argmax, plain.confidences)
        self.remnant = found.remnant
        rows, row = {}, committed
        for stop, count in groups:
            places = range(row, row + count)
            rows[stop] = [Placeholder(hidden[i : i + 1], logits[i : i + 1], i - row) for i in places]
            row += count
        return found, rows

    def defined(self, rows: Sequence[Placeholder], index: int) -> tuple[tuple[int, ...], list[float]]:
        """What rows propose, the first of them for `index`: what is committed by now is in the place of some."""
        before, state, confidences = self.tokens[:index], torch.zeros(1, 16), []
        for row in rows:
            previous = self.embedding(torch.tensor(before[-1:]))
            corrected, state = self.head(row.hidden, previous, row.ordinal, state)
            if len(before) < len(self.tokens):
                before.append(self.tokens[len(before)])
                continue
            own, scores = row.logits[0], functional.linear(corrected, self.output)[0]
            if self.sampling is not None:
                own, scores = (torch.tensor(penalized(each.tolist(), before, self.sampling)) for each in (own, scores))
            ids = own.topk(CANDIDATES).indices
            scores = scores[ids]
            if self.recall is not None:
                context = contexts([before], ids.device)
                scores = scores + self.recall.bonuses(match_features(context, ids[None], IDS))[0]
            best = scores.argmax()
            if self.sampling is not None and self.sampling.draws:
                best = draw(scores[None], [(self.sampling, len(before))], scatter(ids[None]))[0]
            before.append(int(ids[best]))
            confidences.append(torch.softmax(scores, -1)[best].item())
        return tuple(before[len(self.tokens) :]), confidences

    def check(self, found: WindowOutput, rows: Sequence[Placeholder], index: int) -> None:
        """That a window's drafts are those of these rows."""
        drafts, confidences = self.defined(rows, index)
        assert found.drafts == drafts
        assert found.draft_confidences == pytest.approx(confidences, rel=1e-3)


DRAWS = SamplingParams(3, 1.5, 0.95, seed=5)
KINDS = [(None, None), (None, RECALL), (DRAWS, None), (replace(DRAWS, seed=6), RECALL)]


@pytest.mark.parametrize(("sampling", "recall"), KINDS, ids=["greedy", "recall", "draws", "draws and recall"])
@pytest.mark.parametrize("committed", [1, 2, 4])
def test_rows_are_walked_again_behind_what_was_committed(
    sampling: SamplingParams | None, recall: Recall | None, committed: int
) -> None:
    text = Text(sampling, recall)
    found, rows = text.read(1, [(0, 6)])
    index = len(text.tokens)
    text.check(found, rows[0], index)
    first = found.drafts
    found, _ = text.read(committed)
    text.check(found, rows[0], index)
    assert len(found.drafts) == 6 - committed
    assert found.drafts != first[committed:], "what was committed is not what they had said"
    found, _ = text.read(1)
    text.check(found, rows[0], index)


@pytest.mark.parametrize(("sampling", "recall"), KINDS, ids=["greedy", "recall", "draws", "draws and recall"])
@pytest.mark.parametrize(("stop", "count"), [(1, 1), (1, 2), (0, 2), (0, 3), (1, 9)])
def test_what_is_left_goes_on_behind_a_newer_group(
    sampling: SamplingParams | None, recall: Recall | None, stop: int, count: int
) -> None:
    """Two tokens are committed, so the group of stop 0 has one of them in the place of its first row."""
    text = Text(sampling, recall)
    _, old = text.read(1, [(0, 7)])
    index = len(text.tokens)
    found, new = text.read(2, [(stop, count)])
    newer = index + stop + 1  # what the new group begins with
    rows = [*new[stop], *old[0][newer + count - index :]]
    text.check(found, rows, newer)
    for committed in (1, 2):
        found, _ = text.read(committed)
        text.check(found, rows, newer)
    found, newest = text.read(1, [(0, 1)])
    rows = [*newest[0], *rows[len(text.tokens) + 1 - newer :]]
    text.check(found, rows, len(text.tokens))


def test_penalties_count_what_is_in_the_place_of_an_earlier_groups_rows() -> None:
    for how in (SamplingParams(3, 1.2, seed=2, frequency_penalty=3.0, repetition_penalty=1.5), SamplingParams(3)):
        text = Text(replace(how, presence_penalty=4.0, logit_bias=((4, 2.0),)))
        for committed in (1, 2, 3):
            found, rows = text.read(committed, [(0, 5)], keeps=False)
            text.check(found, rows[0], len(text.tokens) - committed + 1)
            assert len(found.drafts) == 6 - committed


def test_what_was_kept_ends_where_it_is_used_up_or_not_asked_for() -> None:
    text = Text()
    text.read(1, [(0, 3)])
    kept = text.remnant
    assert kept is not None
    found, _ = text.read(2)
    assert (len(found.drafts), found.remnant) == (1, kept)
    found, _ = text.read(1)
    assert (found.drafts, found.remnant) == ((), None)
    text.remnant = kept
    found, _ = text.read(1, keeps=False)
    assert (found.drafts, found.remnant) == ((), None)


def test_what_is_kept_holds_no_more_memory_than_it_needs() -> None:
    torch.manual_seed(0)
    head, embedding, output = stirred_head(), torch.nn.Embedding(IDS, HIDDEN), torch.randn(IDS, HIDDEN)
    windows = [Window([4], 0, (), (PlaceholderGroup(0, count),), 1, keeps=True) for count in (2, 5, 1)]
    hidden = torch.randn(sum(window.outputs for window in windows), HIDDEN)
    logits = functional.linear(hidden, output)
    plain = [WindowOutput((3,), (0.5,), ())] * 3
    found = Refiner(head, embedding, output, alone=False).refine(hidden, logits, windows, plain)
    for window, each in zip(windows, found, strict=True):
        assert each.remnant is not None
        assert isinstance(each.remnant.rows, PreparedRows)
        for part in (each.remnant.rows.states, each.remnant.rows.own, each.remnant.rows.effects):
            assert len(part) == window.placeholders
            assert part.untyped_storage().nbytes() == part.numel() * part.element_size()


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_runner_proposes_from_what_is_left(deterministic: bool) -> None:
    """Of few ids, so that the model often says what was proposed: then the rest of it is proposed again."""
    runner = tiny_runner(
        tiny_model(), sequential=stirred_head(), banned=range(4, VOCABULARY), deterministic=deterministic
    )
    came_true = 0
    for seed in range(12):
        tokens = torch.randint(0, 4, (5,), generator=torch.Generator().manual_seed(seed)).tolist()
        first = Window(tokens, 0, range(8), (PlaceholderGroup(4, 5),), logits=1, keeps=True)
        (proposed,) = runner.run([first]).outputs
        assert proposed.remnant is not None
        assert (proposed.remnant.index, proposed.remnant.count) == (6, 5)
        again = Window(proposed.argmax, 5, range(8), logits=1, before=tokens, keeps=True, remnant=proposed.remnant)
        (following,) = runner.run([again]).outputs
        assert len(following.drafts) == 4
        assert following.remnant is proposed.remnant
        if following.argmax == proposed.drafts[:1]:
            came_true += 1
            assert following.drafts == proposed.drafts[1:]
            assert following.draft_confidences == pytest.approx(proposed.draft_confidences[1:], rel=1e-4)
        for window in (replace(again, keeps=False, remnant=None), replace(again, remnant=None)):
            (plain,) = runner.run([window]).outputs
            assert (plain.argmax, plain.drafts, plain.remnant) == (following.argmax, (), None)
    assert 1 <= came_true < 12
