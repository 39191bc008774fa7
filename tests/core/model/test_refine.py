"""The sequential head in a runner: what it may change, and that it does so window by window."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from prove_core.model.draw import draw
from prove_core.model.noise import scatter
from prove_core.model.recall import Recall, contexts, match_features
from prove_core.model.refine import Refiner
from prove_core.model.sequential import CANDIDATES, SequentialHead, choose, scored
from prove_core.model.window import PlaceholderGroup, Window, WindowOutput
from prove_core.types import Floor, SamplingParams
from tests.core.sampling import penalized
from tests.core.tiny import VOCABULARY, tiny_model, tiny_runner

HIDDEN = 64


def stirred_head(placeholders: int = 3) -> SequentialHead:
    head = SequentialHead(HIDDEN, 16, placeholders, torch.Generator().manual_seed(0))
    with torch.no_grad():
        head.o.normal_(std=0.6, generator=torch.Generator().manual_seed(1))
        head.r.normal_(std=0.3, generator=torch.Generator().manual_seed(2))
    return head.requires_grad_(False)


def run(windows: Sequence[Window], sequential: SequentialHead | None, **options: object) -> list[WindowOutput]:
    runner = tiny_runner(tiny_model(), sequential=sequential, **options)  # type: ignore[arg-type]
    return runner.run(windows).outputs


def proposing(seed: int, placeholders: int = 3, pages: int = 0, floor: Floor | None = None) -> Window:
    tokens = torch.randint(0, VOCABULARY - 1, (5,), generator=torch.Generator().manual_seed(seed)).tolist()
    return Window(tokens, 0, range(pages, pages + 4), (PlaceholderGroup(4, placeholders),), logits=1, floor=floor)


def test_each_choice_follows_from_the_one_before_it() -> None:
    """Step by step with the head's own definition, on states and logits made up for one window."""
    torch.manual_seed(0)
    head, embedding, output = stirred_head(), torch.nn.Embedding(50, HIDDEN), torch.randn(50, HIDDEN)
    hidden = torch.randn(4, HIDDEN)
    logits = functional.linear(hidden, output)
    own = tuple(logits.argmax(-1).tolist())
    plain = WindowOutput(own[:1], (0.5,), (), own[1:], (0.5,) * 3)
    (found,) = Refiner(head, embedding, output, alone=False).refine(hidden, logits, [proposing(0)], [plain])
    expected, state = [plain.argmax[0]], torch.zeros(1, 16)
    for depth in range(3):
        previous = embedding(torch.tensor([expected[-1]]))
        corrected, state = head(hidden[depth + 1 : depth + 2], previous, depth, state)
        allowed = logits[depth + 1].topk(CANDIDATES).indices
        scores = functional.linear(corrected, output)[0]
        expected.append(int(allowed[scores[allowed].argmax()]))
        share = torch.softmax(scores[allowed], -1).max().item()
        assert found.draft_confidences[depth] == pytest.approx(share, rel=1e-4)
    assert found.drafts == tuple(expected[1:])
    assert found.drafts != plain.drafts, "a head that changes nothing proves nothing"
    assert (found.argmax, found.confidences) == (plain.argmax, plain.confidences)


def test_ar_verification_and_prefill_rows_are_untouched() -> None:
    windows = [
        Window([3, 4, 5], 0, range(4), logits=1),
        Window([6, 7, 8], 0, range(4, 8), logits=3, targets=(7, 8)),
        proposing(1, pages=8),
        Window([9, 9], 0, range(12, 16)),
    ]
    plain, refined = run(windows, None), run(windows, stirred_head())
    assert [refined[i] for i in (0, 1, 3)] == [plain[i] for i in (0, 1, 3)]
    assert refined[2].argmax == plain[2].argmax, "the AR token is the model's"
    assert refined[2].drafts != plain[2].drafts


@pytest.mark.parametrize("deterministic", [False, True])
def test_blocks_of_different_depths_share_a_pass(deterministic: bool) -> None:
    windows = [proposing(i, placeholders=depth, pages=4 * i) for i, depth in enumerate((2, 7, 1, 3))]
    together = run(windows, stirred_head(), deterministic=deterministic)
    for window, output in zip(windows, together, strict=True):
        (alone,) = run([window], stirred_head(), deterministic=deterministic)
        assert (output.argmax, output.drafts) == (alone.argmax, alone.drafts)
        if deterministic:
            assert output.draft_confidences == alone.draft_confidences
        assert output.draft_confidences == pytest.approx(alone.draft_confidences, rel=1e-4)


def test_only_the_branch_where_verification_stops_is_walked() -> None:
    """Its drafts follow the model's own token there, as those of a plain proposal at that place do."""
    tokens = list(proposing(3).tokens)
    (read,) = run([Window(tokens, 0, range(8), logits=1)], None)
    tokens += [read.argmax[0], 7]
    groups = tuple(PlaceholderGroup(4 + accepted, 3) for accepted in range(3))
    window = Window(tokens, 0, range(8), groups, logits=3, targets=tuple(tokens[5:]))
    (output,) = run([window], stirred_head())
    assert output.argmax[1] != 7
    (plain,) = run([Window(tokens[:6], 0, range(8), (PlaceholderGroup(5, 3),), logits=1)], stirred_head())
    assert output.drafts == plain.drafts
    assert output.draft_confidences == pytest.approx(plain.draft_confidences, rel=1e-4)


def test_every_branch_proposes_what_a_plain_proposal_at_its_place_does() -> None:
    tokens = [*proposing(3).tokens, 9, 7]
    counts = (3, 0, 5)
    groups = tuple(PlaceholderGroup(4 + accepted, count) for accepted, count in enumerate(counts))
    window = Window(tokens, 0, range(8), groups, logits=3, targets=tuple(tokens[5:]), every=True)
    (output,) = run([window], stirred_head())
    expected: list[int] = []
    for accepted, count in enumerate(counts):
        group = (PlaceholderGroup(4 + accepted, count),)
        (plain,) = run([Window(tokens[: 5 + accepted], 0, range(8), group, logits=1)], stirred_head())
        assert output.argmax[accepted] == plain.argmax[0]
        expected += plain.drafts
    assert output.drafts == tuple(expected)
    (unrefined,) = run([window], None)
    assert len(unrefined.drafts) == sum(counts)


def test_banned_ids_and_floors_hold_for_refined_tokens() -> None:
    plain = run([proposing(2)], stirred_head())[0].drafts
    banned = run([proposing(2)], stirred_head(), banned=plain)[0].drafts
    assert not set(plain) & set(banned)
    floored = run([proposing(2, floor=Floor(7, plain))], stirred_head())[0].drafts
    assert floored[0] not in plain, "index 6 is below the floor"


def test_what_came_before_is_recalled() -> None:
    """Step by step: the context is what the sequence holds up to the branch in use, and the choices behind it."""
    torch.manual_seed(0)
    recall = Recall((30.0, 20.0), 10.0)
    head, embedding, output = stirred_head(), torch.nn.Embedding(50, HIDDEN), torch.randn(50, HIDDEN)
    hidden = torch.randn(7, HIDDEN)
    logits = functional.linear(hidden, output)
    own = tuple(logits.argmax(-1).tolist())
    before = tuple(torch.randint(0, 50, (300,)).tolist())
    groups = (PlaceholderGroup(1, 2), PlaceholderGroup(2, 3))
    window = Window([4, 5, own[0]], len(before), range(80), groups, logits=2, targets=own[:1], before=before)
    plain = WindowOutput(own[:2], (0.5,) * 2, ())
    refiner = Refiner(head, embedding, output, alone=False, recall=recall)
    (found,) = refiner.refine(hidden, logits, [window], [plain])
    context, state = [*before, 4, 5, own[0], own[1]], torch.zeros(1, 16)
    for depth, row in enumerate((4, 5, 6)):
        previous = embedding(torch.tensor(context[-1:]))
        corrected, state = head(hidden[row : row + 1], previous, depth, state)
        ids, scores = scored(logits[row : row + 1], corrected, output)
        scores = scores + recall.bonuses(match_features(contexts([context], ids.device), ids, 50))
        assert found.draft_confidences[depth] == pytest.approx(torch.softmax(scores, -1).max().item(), rel=1e-4)
        context.append(int(ids[0, scores.argmax()]))
    assert found.drafts == tuple(context[-3:])
    (without,) = Refiner(head, embedding, output, alone=False).refine(hidden, logits, [window], [plain])
    assert found.drafts != without.drafts, "a recall that changes nothing proves nothing"
    assert (found.argmax, found.confidences) == (plain.argmax, plain.confidences)


def test_fewer_ids_than_candidates() -> None:
    logits = torch.tensor([[0.0, -torch.inf, 1.0]])
    ids, probability = choose(logits, torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [9.0, 0.0], [0.0, 1.0]]))
    assert ids.tolist() == [0]
    assert probability.item() == pytest.approx(torch.softmax(torch.tensor([1.0, 0.0]), 0)[0].item())


def test_draws_and_penalties_go_down_the_placeholders_too() -> None:
    """Step by step with the definitions: each choice is drawn from penalized scores of the leading candidates."""
    torch.manual_seed(0)
    head, embedding, output = stirred_head(), torch.nn.Embedding(50, HIDDEN), torch.randn(50, HIDDEN)
    hidden = torch.randn(4, HIDDEN)
    logits = functional.linear(hidden, output)
    plain = WindowOutput(tuple(logits[:1].argmax(-1).tolist()), (0.5,), ())
    outcomes = set()
    for seed in range(6):
        biases = tuple((token, 4.0) for token in range(0, 50, 2))
        how = SamplingParams(
            3, 4.0, 0.9, seed=seed, frequency_penalty=3.0, repetition_penalty=1.5, logit_bias=biases if seed % 2 else ()
        )
        window = replace(proposing(0), tokens=[7, 8, 9, *logits[1:3].argmax(-1).tolist()], sampling=how)
        (found,) = Refiner(head, embedding, output, alone=False).refine(hidden, logits, [window], [plain])
        before = [*window.tokens, plain.argmax[0]]
        state = torch.zeros(1, 16)
        for depth in range(3):
            previous = embedding(torch.tensor([before[-1]]))
            corrected, state = head(hidden[depth + 1 : depth + 2], previous, depth, state)
            own = torch.tensor(penalized(logits[depth + 1].tolist(), before, how))
            allowed = own.topk(CANDIDATES).indices
            scores = torch.tensor(penalized(functional.linear(corrected, output)[0].tolist(), before, how))[allowed]
            drawn = draw(scores[None], [(how, len(before))], scatter(allowed[None])).item()
            before.append(int(allowed[int(drawn)]))
            share = torch.softmax(scores, -1)[int(drawn)].item()
            assert found.draft_confidences[depth] == pytest.approx(share, rel=1e-3)
        assert found.drafts == tuple(before[-3:])
        outcomes.add(found.drafts)
    assert len(outcomes) > 3
