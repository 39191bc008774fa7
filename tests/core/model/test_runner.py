"""What a pass answers: outputs per window, bans, floors, targets, placeholders."""

from dataclasses import replace

import pytest
import torch

from prove_core.model.rows import RowMask
from prove_core.model.window import PlaceholderGroup, SidePath, Window
from prove_core.types import Floor
from tests.core.tiny import FAMILIES, PAGE_SIZE, VOCABULARY, tiny_model, tiny_runner

PROMPT = (3, 1, 4, 1, 5, 9, 2, 6)
PAGES = (7, 2, 9, 4, 11)


def full_probabilities(model: torch.nn.Module, embeds: torch.Tensor | None = None) -> torch.Tensor:
    """Float32 softmax of a plain eager pass over PROMPT (or `embeds`)."""
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        inputs = {"input_ids": torch.tensor([PROMPT])} if embeds is None else {"inputs_embeds": embeds}
        return torch.softmax(model(**inputs).logits[0].float(), -1)


def test_scores_rows_and_targets() -> None:
    expected = full_probabilities(tiny_model())
    runner = tiny_runner(tiny_model())
    window = Window(PROMPT, 0, PAGES, logits=3, targets=(6, 0))
    (output,) = runner.run([window]).outputs
    assert output.argmax == tuple(expected[-3:].argmax(-1).tolist())
    torch.testing.assert_close(torch.tensor(output.confidences), expected[-3:].amax(-1), rtol=1e-4, atol=1e-6)
    wanted = torch.stack([expected[5, 6], expected[6, 0]])
    torch.testing.assert_close(torch.tensor(output.probabilities), wanted, rtol=1e-4, atol=1e-7)


def test_probabilities_are_there_for_windows_that_weigh() -> None:
    runner = tiny_runner(tiny_model(), placeholder_table=torch.randn(3, 64, generator=torch.Generator().manual_seed(1)))
    groups = tuple(PlaceholderGroup(after, 2) for after in range(3, 6))
    window = Window(PROMPT, 0, (0, 1, 2, 3), groups, logits=3, targets=(6, 0))
    light = replace(window, pages=(4, 5, 6, 7), weighs=False)
    before, between, after = runner.run([window, light, replace(window, pages=(8, 9, 10, 11))]).outputs
    assert (between.argmax, between.drafts) == (before.argmax, before.drafts)
    assert between.draft_confidences == pytest.approx(before.draft_confidences, rel=1e-4)
    assert (between.confidences, between.probabilities) == ((), ())
    assert after.confidences == pytest.approx(before.confidences, rel=1e-4)
    assert after.probabilities == pytest.approx(before.probabilities, rel=1e-4)


def test_windows_without_logits_answer_nothing() -> None:
    passed = tiny_runner(tiny_model()).run([Window(PROMPT, 0, PAGES), Window(PROMPT, 0, (20, 21))])
    assert [(o.argmax, o.confidences, o.probabilities) for o in passed.outputs] == [((), (), ())] * 2
    assert passed.seconds > 0


def test_each_window_gets_its_own_rows() -> None:
    runner = tiny_runner(tiny_model())
    windows = [
        Window(PROMPT, 0, (0, 1), logits=2, targets=(9,)),
        Window(PROMPT[:5], 0, (2, 3)),
        Window(PROMPT[2:], 0, (4, 5), logits=1, targets=(8,)),
    ]
    together = runner.run(windows).outputs
    for window, output in zip(windows, together, strict=True):
        (alone,) = runner.run([window]).outputs
        assert alone.argmax == output.argmax
        assert alone.probabilities == pytest.approx(output.probabilities, rel=1e-3)


def test_banned_ids_are_never_chosen() -> None:
    best = full_probabilities(tiny_model())[-1].argmax().item()
    runner = tiny_runner(tiny_model(), banned=[best, VOCABULARY + 5])
    (output,) = runner.run([Window(PROMPT, 0, PAGES, logits=1, targets=(best,))]).outputs
    assert output.argmax[0] != best
    assert output.probabilities == (0.0,)


def test_floor_bans_stops_at_early_rows_only() -> None:
    runner = tiny_runner(tiny_model())
    free = runner.run([Window(PROMPT, 0, PAGES, logits=8)]).outputs[0].argmax
    # the row at position p predicts index p + 1: rows 0..3 predict indices 1..4, below a floor of 5
    floor = Floor(length=5, stop_ids=tuple(set(free)))
    bounded = runner.run([Window(PROMPT, 0, PAGES, logits=8, floor=floor)]).outputs[0].argmax
    assert not set(bounded[:4]) & set(free)
    assert bounded[4:] == free[4:]
    late = runner.run([Window(PROMPT, 0, PAGES, logits=2, floor=floor)]).outputs[0].argmax
    assert late == free[-2:]
    beyond = replace(floor, stop_ids=(*floor.stop_ids, VOCABULARY + 5))  # some checkpoints declare such ends
    assert runner.run([Window(PROMPT, 0, PAGES, logits=8, floor=beyond)]).outputs[0].argmax == bounded


@pytest.mark.parametrize("family", FAMILIES)
def test_placeholder_rows_take_the_table(family: str) -> None:
    table = torch.randn(2, 64, generator=torch.Generator().manual_seed(3))
    model = tiny_model(family)
    with torch.inference_mode():
        embeds = model.get_input_embeddings()(torch.tensor([PROMPT]))
        embeds[0, 5:] = table[[0, 1, 1]]
    expected = full_probabilities(model, embeds)
    runner = tiny_runner(tiny_model(family), placeholder_table=table)
    (output,) = runner.run([Window(PROMPT[:5], 0, PAGES, (PlaceholderGroup(4, 3),), logits=1)]).outputs
    assert output.argmax + output.drafts == tuple(expected[4:].argmax(-1).tolist())
    found = output.confidences + output.draft_confidences
    assert found == pytest.approx(expected[4:].amax(-1).tolist(), rel=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("stop", range(4))
def test_a_group_sees_what_the_token_before_it_sees(family: str, stop: int) -> None:
    """Whatever else is in the window, its drafts are those of a plain window that ends there."""
    runner = tiny_runner(tiny_model(family), placeholder_table=torch.randn(3, 64))
    (read,) = runner.run([Window(PROMPT, 0, PAGES, logits=len(PROMPT))]).outputs
    block = [*read.argmax[2 : 2 + stop], *(token + 1 for token in read.argmax[2 + stop : 5])]  # true up to `stop`
    block = [token % VOCABULARY for token in block]
    tokens = [*PROMPT[:3], *block]
    (verified,) = runner.run([Window(tokens, 0, PAGES, logits=4, targets=tuple(block))]).outputs
    right = next((i for i, (a, b) in enumerate(zip(block, verified.argmax, strict=False)) if a != b), 3)
    groups = tuple(PlaceholderGroup(2 + accepted, 3) for accepted in range(4))
    window = Window(tokens, 0, PAGES, groups, logits=4, targets=tuple(block))
    other = Window(PROMPT[:4], 0, (*range(20, 24),), (PlaceholderGroup(3, 2),), logits=1)
    for windows in ([window], [other, window]):
        tree = runner.run(windows).outputs[-1]
        (plain,) = runner.run(
            [Window(tokens[: 3 + right], 0, range(24, 30), (PlaceholderGroup(2 + right, 3),), logits=1)]
        ).outputs
        assert tree.argmax == verified.argmax
        assert tree.drafts == plain.drafts
        assert tree.draft_confidences == pytest.approx(plain.draft_confidences, rel=1e-3)
    narrow = replace(window, groups=tuple(group for group in groups if group.after != 2 + right))
    earlier: tuple[int, ...] = ()
    if right:  # the group before that stands instead, less the place whose token is known by now
        group = (PlaceholderGroup(1 + right, 3),)
        (before,) = runner.run([Window(tokens[: 2 + right], 0, range(24, 30), group, logits=1)]).outputs
        earlier = before.drafts[1:]
    assert runner.run([narrow]).outputs[0].drafts == earlier


@pytest.mark.parametrize("family", FAMILIES)
def test_a_side_path_sees_what_the_token_before_it_sees(family: str) -> None:
    """And counts as later than what the tokens behind that count as: sliding windows, `min_tokens`, other windows."""
    runner = tiny_runner(tiny_model(family))
    sides = SidePath(4, (9, 2)), SidePath(7, (1,)), SidePath(5, (4, 4, 4))
    window = Window(PROMPT, 0, PAGES, (PlaceholderGroup(7, 2),), logits=4, targets=PROMPT[-3:], sides=sides)
    other = Window(PROMPT[:4], 0, (*range(20, 24),), (PlaceholderGroup(3, 2),), logits=1)
    (plain,) = runner.run([replace(window, sides=())]).outputs
    said = [
        runner.run([Window((*PROMPT[: s.after + 1], *s.tokens), 0, range(24, 30), logits=s.count)]).outputs[0].argmax
        for s in sides
    ]
    for windows in ([window], [other, window], [window, other]):
        output = runner.run(windows).outputs[windows.index(window)]
        assert output.behind == tuple(said)
        assert (output.argmax, output.drafts) == (plain.argmax, plain.drafts)
    floor = Floor(length=8, stop_ids=tuple({token for path in said for token in path}))
    (bounded,) = runner.run([replace(window, floor=floor)]).outputs
    for side, path, free in zip(sides, bounded.behind, said, strict=True):
        early = max(0, floor.length - (side.after + 2))  # rows that predict an index below the floor
        assert not set(path[:early]) & set(floor.stop_ids)
        assert path[early:] == free[early:]


def test_placeholder_rows_without_a_table_embed_the_placeholder() -> None:
    runner = tiny_runner(tiny_model(), placeholder_id=17)
    (held,) = runner.run([Window(PROMPT[:3], 0, PAGES, (PlaceholderGroup(2, 2),), logits=1)]).outputs
    (said,) = runner.run([Window((*PROMPT[:3], 17, 17), 0, PAGES, logits=3)]).outputs
    assert (held.argmax + held.drafts, held.confidences + held.draft_confidences) == (said.argmax, said.confidences)


def test_placeholders_are_scratch() -> None:
    runner = tiny_runner(tiny_model())
    runner.run([Window(PROMPT[:3], 0, PAGES, (PlaceholderGroup(2, 4),), logits=1)])
    (after,) = runner.run([Window(PROMPT[3:], 3, PAGES, logits=1)]).outputs
    (fresh,) = runner.run([Window(PROMPT, 0, PAGES, logits=1)]).outputs
    assert after.argmax == fresh.argmax
    assert after.confidences == pytest.approx(fresh.confidences, rel=1e-3)


def test_row_mask_names_placeholder_rows() -> None:
    rows, seen = RowMask(), []
    runner = tiny_runner(tiny_model(), rows=rows)
    runner._model.model.layers[0].register_forward_hook(lambda *_: seen.append(rows.placeholders))
    one = Window((1,), 0, (3,), (PlaceholderGroup(0, 1),))
    runner.run([Window(PROMPT[:3], 0, (0, 1, 2), (PlaceholderGroup(2, 2),)), one])
    runner.run([Window(PROMPT, 0, PAGES)])
    assert seen[0].tolist() == [3, 4, 6]
    assert seen[1] is None


def test_page_size_is_that_of_the_storage() -> None:
    one, other = (tiny_runner(tiny_model(), page_size=size) for size in (1, PAGE_SIZE))
    window = Window(PROMPT, 0, (5, 3, 1, 0, 2, 4, 6, 7), logits=4)
    assert one.run([window]).outputs[0].argmax == other.run([window]).outputs[0].argmax
