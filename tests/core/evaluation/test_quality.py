"""Quality figures: rules against counting, and models that are alike, differ a little, or end elsewhere."""

from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.evaluation.quality import (
    Answer,
    Task,
    accuracy_figures,
    agreement_figures,
    agreements,
    answer_all,
    common_share,
    perplexity,
    perplexity_figures,
    read_all,
)
from prove_core.model.window import PassOutput, Window, WindowOutput
from prove_core.types import Reading
from tests.core.engine.harness import running
from tests.core.toy import VOCABULARY, ToyRunner, continuation

STOP = 7
TASKS = [Task((index, 1, 2), (5, 6) if index % 2 else ()) for index in range(20)]
TOKENS = st.lists(st.integers(0, 2), max_size=6).map(tuple)
ANSWERS = st.builds(Answer, TOKENS, st.booleans()).filter(lambda answer: answer.tokens or answer.ended)


class Stubborn(ToyRunner):
    """Likes `favourite` after every context whose length divides by `every`, and says nothing else differently."""

    def __init__(self, every: int, favourite: int) -> None:
        super().__init__(4)
        self.every, self.favourite = every, favourite

    def run(self, windows: list[Window]) -> PassOutput:  # type: ignore[override]
        output = super().run(windows)
        changed = [self._changed(*pair) for pair in zip(windows, output.outputs, strict=True)]
        return PassOutput(changed, output.seconds)

    def _changed(self, window: Window, output: WindowOutput) -> WindowOutput:
        first = window.length - window.logits + 1
        ids = [self.favourite if (first + i) % self.every == 0 else token for i, token in enumerate(output.argmax)]
        return WindowOutput(tuple(ids), output.confidences, output.probabilities)


@given(ANSWERS, ANSWERS)
def test_common_share_against_counting(a: Answer, b: Answer) -> None:
    x, y = ([*answer.tokens, *(["end"] if answer.ended else [])] for answer in (a, b))
    same = next((i for i in range(min(len(x), len(y))) if x[i] != y[i]), min(len(x), len(y)))
    assert common_share(a, b) == pytest.approx(same / max(len(x), len(y)))
    assert (common_share(a, b) == 1) == (a == b)
    assert common_share(a, b) == common_share(b, a)


def test_agreement_counts_the_end_and_any_stop_id() -> None:
    answer, open_end = Answer((1, 2), True), Answer((1, 2), False)
    assert agreements(answer, Reading((1, 9, 8), (0.5, 0.5)), (7, 8)) == [True, False, True]
    assert agreements(answer, Reading((1, 2, 3), (0.5, 0.5)), (7, 8)) == [True, True, False]
    assert agreements(open_end, Reading((1, 2, 3), (0.5, 0.5)), (7, 8)) == [True, True]
    assert agreements(Answer((), True), Reading((7,), ()), (7, 8)) == [True]


@given(st.lists(st.lists(st.floats(1e-30, 1), max_size=5), min_size=1, max_size=5).filter(any))
def test_perplexity_is_over_tokens_not_texts(texts: list[list[float]]) -> None:
    flat = [p for text in texts for p in text]
    readings = [Reading((0,) * (len(text) + 1), tuple(text)) for text in texts]
    assert perplexity(readings) == pytest.approx(exp(-sum(map(log, flat)) / len(flat)))


def test_a_probability_that_underflowed_is_very_unlikely_rather_than_impossible() -> None:
    assert 1e44 < perplexity([Reading((0, 0), (0.0,))]) < 1e46


def test_texts_without_a_token_have_no_perplexity() -> None:
    assert perplexity_figures("", [Reading((7,), ())], [Reading((7,), ())]) == {}


def test_accuracy_is_paired() -> None:
    figures = accuracy_figures([True, True, False, False], [True, False, False, False])
    assert (figures["accuracy_reference"], figures["accuracy_candidate"]) == (0.5, 0.25)
    assert (figures["accuracy_difference"], figures["accuracy_tasks"]) == (-0.25, 4)
    assert all(0 < figures[f"accuracy_{name}_half_width"] < 1 for name in ("reference", "candidate", "difference"))


def figures_of(candidate: ToyRunner) -> dict[str, float]:
    """Of `candidate` against the plain toy, on all tasks."""
    with running(ToyRunner(4)) as engine:
        ours = answer_all(engine, TASKS, 12, (STOP,))
        read = read_all(engine, TASKS, ours)
    with running(candidate) as engine:
        theirs = answer_all(engine, TASKS, 12, (STOP,))
        theirs_read = read_all(engine, TASKS, ours)
    figures, samples = agreement_figures(ours, theirs, read.answers, theirs_read.answers, (STOP,))
    assert figures["teacher_forced_agreement_reference"] == 1
    assert len(read.answers) == 20
    assert len(read.human) == 10
    assert [len(values) for values in samples.values()] == [20, 20]
    assert sum(samples["common_share"]) / 20 == pytest.approx(figures["common_share"])
    return figures


def test_answers_are_greedy_and_know_whether_they_ended() -> None:
    with running(ToyRunner(4)) as engine:
        answers = answer_all(engine, TASKS, 12, (STOP,))
    for task, answer in zip(TASKS, answers, strict=True):
        expected = continuation(task.prompt, 12)
        assert answer.ended == (STOP in expected)
        assert list(answer.tokens) == expected[: expected.index(STOP) if answer.ended else None]
    assert {answer.ended for answer in answers} == {True, False}


def test_a_model_agrees_with_itself() -> None:
    figures = figures_of(ToyRunner(4))
    assert figures["identical_share"] == figures["common_share"] == figures["teacher_forced_agreement"] == 1
    assert figures["ended_reference"] == figures["ended_candidate"]


def test_a_model_that_differs_now_and_then_is_found_out() -> None:
    figures = figures_of(Stubborn(5, VOCABULARY - 1))
    assert figures["identical_share"] < 0.2
    # one place in five differs, and only there once the prefix is given; left alone it never comes back
    assert 0.7 < figures["teacher_forced_agreement"] < 0.9
    assert figures["common_share"] < figures["teacher_forced_agreement"]


def test_a_model_that_ends_early_is_found_out() -> None:
    figures = figures_of(Stubborn(6, STOP))
    assert figures["ended_candidate"] == 1 > figures["ended_reference"]
    assert figures["identical_share"] < 0.2
