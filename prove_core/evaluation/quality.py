"""Does one model answer as well as another? A candidate against a reference, both with plain AR decoding.

Greedy ids decide whether an adapter leaves its base's AR output untouched; readings of the same texts, and answers
that can be right or wrong, say how much is lost where it does not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, fsum, log

from prove_core.engine.engine import Engine
from prove_core.evaluation.forced import read_forced
from prove_core.evaluation.intervals import paired_difference, wilson
from prove_core.training.distill import greedy_answers
from prove_core.types import Reading, TokenIds

Tick = Callable[[], None]

_LEAST = 2.0**-149  # float32's least probability above 0: one that underflowed must not make a text impossible


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt, and a human answer to it with its end token (empty: there is none)."""

    prompt: TokenIds
    human: TokenIds = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """A greedy answer without its end token; `ended` by itself rather than at the limit."""

    tokens: TokenIds
    ended: bool


@dataclass(frozen=True, slots=True)
class Readings:
    """One model's readings of the reference's answers, one a task, and of the human answers that there are."""

    answers: tuple[Reading, ...]
    human: tuple[Reading, ...]


def answer_all(
    engine: Engine, tasks: Sequence[Task], max_tokens: int, eos_ids: TokenIds, tick: Tick = lambda: None
) -> list[Answer]:
    """The model's greedy answers, in the tasks' order. Raises what the engine answers."""
    answers: dict[int, Answer] = {}
    for index, tokens in greedy_answers(engine, [task.prompt for task in tasks], max_tokens, eos_ids):
        ended = tokens[-1] in eos_ids
        answers[index] = Answer(tokens[:-1] if ended else tokens, ended)
        tick()
    return [answers[index] for index in range(len(tasks))]


def read_all(engine: Engine, tasks: Sequence[Task], answers: Sequence[Answer], tick: Tick = lambda: None) -> Readings:
    """The model's readings of `answers` (the reference's) and of the tasks' human ones. Raises as the engine does."""
    ours, human = [], []
    for index, (task, answer) in enumerate(zip(tasks, answers, strict=True)):
        ours.append(read_forced(engine, f"answer-{index}", task.prompt, answer.tokens))
        if task.human:
            human.append(read_forced(engine, f"human-{index}", task.prompt, task.human))
        tick()
    return Readings(tuple(ours), tuple(human))


def common_share(reference: Answer, candidate: Answer) -> float:
    """Tokens up to the first difference, as a share of the longer answer; 1.0 is the same answer.

    The end of an answer counts as a token.
    """
    ours, theirs = _with_end(reference), _with_end(candidate)
    same = [a == b for a, b in zip(ours, theirs, strict=False)]
    return [*same, False].index(False) / max(len(ours), len(theirs))


def _with_end(answer: Answer) -> tuple[int | None, ...]:
    return (*answer.tokens, None) if answer.ended else answer.tokens


def agreements(answer: Answer, reading: Reading, eos_ids: TokenIds) -> list[bool]:
    """At each place of `answer`, its end included: is it the argmax of the model whose `reading` of it this is?"""
    same = [a == b for a, b in zip(answer.tokens, reading.argmax, strict=False)]
    return [*same, reading.argmax[-1] in eos_ids] if answer.ended else same


def perplexity(readings: Sequence[Reading]) -> float:
    """exp of the mean of -ln p(token | prompt, tokens before it) over all tokens of all texts.

    There is at least one. Greedy answers come without their end token, as engines do not show which it was.
    """
    logs = [log(max(p, _LEAST)) for reading in readings for p in reading.probabilities]
    return exp(-fsum(logs) / len(logs))


def agreement_figures(
    reference: Sequence[Answer],
    candidate: Sequence[Answer],
    own: Sequence[Reading],
    readings: Sequence[Reading],
    eos_ids: TokenIds,
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Figures of how alike the answers to the same tasks are, and the samples, one a task, that they are means of.

    `own` are the reference's readings of its own answers, `readings` the candidate's of the same. The teacher-forced
    agreements are over all places, so that a long answer weighs more; the samples are shares of each answer.
    `teacher_forced_agreement_reference` is what rounding leaves of 1 where nothing differs: reading many tokens in one
    pass is not decoding them one by one, unless the engine is deterministic.
    """
    pairs = list(zip(reference, candidate, strict=True))
    shared = [common_share(ours, theirs) for ours, theirs in pairs]
    forced = [agreements(answer, reading, eos_ids) for answer, reading in zip(reference, readings, strict=True)]
    itself = [agreements(answer, reading, eos_ids) for answer, reading in zip(reference, own, strict=True)]
    figures = {
        "prompts": len(pairs),
        "identical_share": sum(ours == theirs for ours, theirs in pairs) / len(pairs),
        "common_share": sum(shared) / len(pairs),
        "teacher_forced_agreement": sum(map(sum, forced)) / sum(map(len, forced)),
        "teacher_forced_agreement_reference": sum(map(sum, itself)) / sum(map(len, itself)),
        "ended_reference": sum(answer.ended for answer in reference) / len(pairs),
        "ended_candidate": sum(answer.ended for answer in candidate) / len(pairs),
    }
    shares = [sum(places) / len(places) for places in forced]
    return figures, {"common_share": shared, "teacher_forced_agreement": shares}


def accuracy_figures(reference: Sequence[bool], candidate: Sequence[bool]) -> dict[str, float]:
    """Shares of right answers to the same tasks, at least one, and their difference, with 95 % half-widths."""
    count = len(reference)
    return {
        "accuracy_tasks": count,
        "accuracy_reference": sum(reference) / count,
        "accuracy_reference_half_width": wilson(sum(reference), count).half_width,
        "accuracy_candidate": sum(candidate) / count,
        "accuracy_candidate_half_width": wilson(sum(candidate), count).half_width,
        "accuracy_difference": (sum(candidate) - sum(reference)) / count,
        "accuracy_difference_half_width": paired_difference(reference, candidate).half_width,
    }


def perplexity_figures(prefix: str, reference: Sequence[Reading], candidate: Sequence[Reading]) -> dict[str, float]:
    """Both models' perplexities of the same texts and candidate / reference; nothing where the texts have no token."""
    tokens = sum(len(reading.probabilities) for reading in reference)
    if not tokens:
        return {}
    ours, theirs = perplexity(reference), perplexity(candidate)
    return {
        f"{prefix}tokens": tokens,
        f"{prefix}perplexity_reference": ours,
        f"{prefix}perplexity_candidate": theirs,
        f"{prefix}perplexity_ratio": theirs / ours,
    }
