from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.errors import DataError, ProveError
from prove_core.training.dataset import read_examples
from prove_core.training.distill import distill, greedy_answers, pool_tokens, unanswered
from tests.core.engine.harness import engine_config, running
from tests.core.toy import VOCABULARY, ToyRunner

PROMPTS = [(index, 1, 2) for index in range(20)]
STOP = 7


def expected(prompt: tuple[int, ...], limit: int = 12) -> tuple[int, ...]:
    tokens = list(prompt)
    while len(tokens) < len(prompt) + limit and (tokens[-1] != STOP or len(tokens) == len(prompt)):
        tokens.append(ToyRunner.next_token(tokens))
    return tuple(tokens[len(prompt) :])


@pytest.mark.parametrize("concurrency", [1, 3, 50])
def test_answers_are_greedy_and_complete_at_any_concurrency(concurrency: int) -> None:
    with running(ToyRunner(4)) as engine:
        answers = dict(greedy_answers(engine, PROMPTS, 12, (STOP,), concurrency=concurrency))
    assert answers == {index: expected(prompt) for index, prompt in enumerate(PROMPTS)}
    assert any(answer[-1] == STOP for answer in answers.values()), "the stop id is part of the answer"


def test_leaving_early_frees_the_engine() -> None:
    with running(ToyRunner(4)) as engine:
        answers = greedy_answers(engine, PROMPTS, 12, (STOP,), concurrency=8)
        next(answers)
        answers.close()  # type: ignore[attr-defined]


def test_a_prompt_that_cannot_fit_is_an_error() -> None:
    with running(ToyRunner(4), engine_config(tokens=16)) as engine, pytest.raises(ProveError):
        list(greedy_answers(engine, [(1,) * 30], 12, (STOP,)))


def test_a_killed_run_is_taken_up_where_its_file_ends(tmp_path: Path) -> None:
    path, ticks = tmp_path / "answers.jsonl", list[int]()
    with running(ToyRunner(4)) as engine:
        assert distill(engine, PROMPTS[:5], 12, (STOP,), path) == 5
        with path.open("a") as file:
            file.write('{"prompt": [5, 1, 2], "answ')
        assert distill(engine, [*PROMPTS, PROMPTS[0]], 12, (STOP,), path, ticks.append) == 15
        assert distill(engine, PROMPTS, 12, (STOP,), path) == 0
    assert sorted(ticks) == sorted(len(expected(prompt)) for prompt in PROMPTS[5:])
    examples = read_examples([path], vocabulary=VOCABULARY, shortest=1)
    assert {e.prompt: e.answer for e in examples} == {prompt: expected(prompt) for prompt in PROMPTS}


def test_answers_of_another_model_are_not_added_to(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with running(ToyRunner(4)) as engine:
        distill(engine, PROMPTS[:2], 12, (STOP,), path, by="toy, 12 tokens")
    assert unanswered(PROMPTS, path, "toy, 12 tokens") == PROMPTS[2:]
    assert unanswered(PROMPTS, path) == PROMPTS[2:]
    with pytest.raises(DataError, match=r"by toy, 12 tokens, not by toy, 13 tokens: name another file"):
        unanswered(PROMPTS, path, "toy, 13 tokens")


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(1, 20), st.integers(1, 10))
def test_the_pool_holds_any_completions_that_may_run_together(lengths: list[int], most: int, together: int) -> None:
    prompts = [(0,) * length for length in lengths]
    needed = [-(-(length + most) // 4) * 4 for length in lengths]
    worst = max(sum(chosen) for chosen in combinations(needed, min(together, len(needed))))
    assert pool_tokens(prompts, most, together, 4) == worst


@pytest.mark.parametrize(
    "text",
    ["not json\n", '{"question": "x"}\n', "[1]\n", "3\n", '{"prompt": "text"}\n', '{"prompt": "a", "answer": "b"}\n'],
)
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(text)
    with running(ToyRunner(4)) as engine, pytest.raises(DataError, match=r"answers\.jsonl"):
        distill(engine, PROMPTS, 4, (STOP,), path)
    assert path.read_text() == text
