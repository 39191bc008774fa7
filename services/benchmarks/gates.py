"""`prove bench gates`: what a verifier is worth as a gate, on recorded blocks and in real decoding.

Recorded blocks stand along the proposer's greedy answers, and every gate is judged on the same ones (`replay_*`, AUC,
calibration). Real decoding lets each mode go its own way (the other figures): tokens per cycle as served, and how many
of the decisions in its output are not the proposer's own after that output.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from prove_core.config import ModelConfig
from prove_core.engine.engine import Engine
from prove_core.engine.many import in_threads
from prove_core.errors import DataError
from prove_core.evaluation.gate_figures import Figures, Replay, Samples, cross_weights, replay, replay_figures
from prove_core.evaluation.gate_recording import record_blocks
from prove_core.evaluation.on_policy import Outcome, decode_and_judge, total
from prove_core.evaluation.prompts import read_prompts
from prove_core.model.compatibility import check_compatible
from prove_core.model.info import CheckpointInfo
from prove_core.model.progress import Progress
from prove_core.text.context import completion_limit
from prove_core.training.gate_records import BlockRecord, write_records
from prove_core.types import DecodingParams, Gate, GateWeights, Limits, Mode, Role, TokenIds
from services.benchmarks.prompts import rendered, text_engine
from services.benchmarks.report import Report
from services.cli.progress import reporting

AT_ONCE = 8  # prompts in flight: the engines share passes between them
POOL = 32768  # tokens, in each engine

T = TypeVar("T")
Policies = Mapping[str, DecodingParams]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure. `weights` of the logistic gate; without, it is fitted on the recorded blocks."""

    block_size: int
    max_tokens: int
    stride: int
    thetas: tuple[float, ...]
    tau: float
    weights: GateWeights | None = None


def run(
    proposer: ModelConfig, verifier: ModelConfig, data: Path, limit: int, plan: Plan, record: Path | None
) -> Report:
    """Record blocks of the first `limit` prompts (into the file `record` too), judge the gates on them, then decode.

    Raises DataError for data that cannot be used, IncompatibleModels, RequestError for a proposer that has no
    placeholder, and what loading a checkpoint raises.
    """
    texts = read_prompts(data, limit)
    with reporting(enabled=True) as progress, _pair(proposer, verifier, progress) as (engines, info):
        info.check_proposes(DecodingParams(Mode.PROVE, block_size=plan.block_size))
        bench = _Bench(engines, _tasks(info, texts, plan), plan, progress)
        records = bench.record()
        if record is not None:
            write_records(record, records)
        weights = cross_weights(records) if plan.weights is None else (plan.weights, plan.weights)
        replayed = replay(records, weights)
        figures, samples = replay_figures(replayed, plan.thetas, plan.tau)
        policies = _policies(plan, replayed)
        outcomes = bench.decode(policies, weights)
    decoded, ratios, counts = _decoded(outcomes, f"mars_tau{plan.tau:g}")
    config = {
        "data": data.name,
        "proposer": proposer.model_dump(),
        "verifier": verifier.model_dump(),
        "block_size": plan.block_size,
        "max_tokens": plan.max_tokens,
        "stride": plan.stride,
        "thetas": {name: params.theta for name, params in policies.items() if params.mode is Mode.PROVE},
        "gate_weights": "fitted on the other half of the prompts" if plan.weights is None else "given",
    }
    return Report(
        name="gates",
        config=config,
        samples=samples | counts,
        figures=_counts(records) | decoded | figures,
        ratios=ratios,
    )


@contextmanager
def _pair(
    proposer: ModelConfig, verifier: ModelConfig, progress: Progress
) -> Iterator[tuple[dict[Role, Engine], CheckpointInfo]]:
    with (
        text_engine(proposer, tokens=POOL, name="proposer", progress=progress) as own,
        text_engine(verifier, tokens=POOL, name="verifier", progress=progress) as other,
    ):
        check_compatible(own.info, other.info)
        yield {Role.PROPOSER: own.engine, Role.VERIFIER: other.engine}, own.info


def _tasks(info: CheckpointInfo, texts: Sequence[str], plan: Plan) -> list[tuple[TokenIds, Limits]]:
    room = info.context_length - plan.block_size  # a recorded block may reach beyond its trajectory
    stops = frozenset(info.eos_ids)
    prompts = rendered(info, texts)
    return [(prompt, Limits(completion_limit(len(prompt), plan.max_tokens, room), stops)) for prompt in prompts]


class _Bench:
    """Both engines at work on the prompts, some at once: a thread each, which mostly waits."""

    def __init__(
        self,
        engines: dict[Role, Engine],
        tasks: Sequence[tuple[TokenIds, Limits]],
        plan: Plan,
        progress: Progress,
    ) -> None:
        self._engines = engines
        self._tasks = tasks
        self._plan = plan
        self._progress = progress

    def record(self) -> list[BlockRecord]:
        """The blocks of all prompts, at least one candidate among them."""
        self._progress.stage("recording blocks", len(self._tasks))

        def blocks(index: int, prompt: TokenIds, limits: Limits) -> list[BlockRecord]:
            return record_blocks(self._engines, index, prompt, limits, self._plan.block_size, self._plan.stride)

        records = [record for part in self._each(blocks) for record in part]
        if not records:
            raise DataError("no answer is long enough for a block to judge")
        return records

    def decode(self, policies: Policies, weights: tuple[GateWeights, GateWeights]) -> dict[str, list[Outcome]]:
        """Every prompt's outcome, by policy; `weights` for even and odd prompts."""
        self._progress.stage("decoding", len(self._tasks) * len(policies))

        def outcomes(name: str, params: DecodingParams) -> list[Outcome]:
            return self._each(
                lambda index, prompt, limits: decode_and_judge(
                    self._engines, f"{name}-{index}", prompt, replace(params, gate_weights=weights[index % 2]), limits
                )
            )

        return {name: outcomes(name, params) for name, params in policies.items()}

    def _each(self, work: Callable[[int, TokenIds, Limits], T]) -> list[T]:
        """`work` on every prompt; the first error ends it once those under way are done."""
        results = []
        for result in in_threads(lambda index: work(index, *self._tasks[index]), len(self._tasks), AT_ONCE):
            results.append(result)
            self._progress.advance(1)
        return results


def _policies(plan: Plan, replayed: Replay) -> dict[str, DecodingParams]:
    """What is decoded: the gate `product` at each theta, and two gates where their recorded error is that of MARS."""
    base = DecodingParams(Mode.PROVE, block_size=plan.block_size)
    policies = {
        "lossless": replace(base, mode=Mode.LOSSLESS),
        f"mars_tau{plan.tau:g}": replace(base, mode=Mode.MARS, tau=plan.tau),
    }
    policies |= {f"prove_theta{theta:g}": replace(base, theta=theta) for theta in plan.thetas}
    for gate in (Gate.PRODUCT, Gate.LOGISTIC):
        theta = replayed.matched(gate, plan.tau).threshold
        policies[f"prove_{gate}_at_mars_error"] = replace(base, gate=gate, theta=theta)
    return policies


def _counts(records: Sequence[BlockRecord]) -> Figures:
    right = [candidate.right for record in records for candidate in record.candidates]
    prompts = len({record.prompt for record in records})
    return {
        "prompts": prompts,
        "blocks": len(records),
        "candidates": len(right),
        "right_share": sum(right) / len(right),
    }


def _decoded(outcomes: Mapping[str, Sequence[Outcome]], mars: str) -> tuple[Figures, Figures, Samples]:
    """Figures, ratios to MARS, and the counts of every prompt."""
    figures: Figures = {}
    samples: Samples = {}
    for name, each in outcomes.items():
        whole = total(each)
        figures[f"{name}_tokens_per_cycle"] = whole.tokens / max(whole.cycles, 1)
        figures[f"{name}_non_ar_share"] = whole.non_ar / max(whole.judged, 1)
        figures[f"{name}_tokens"] = whole.tokens
        for count in ("tokens", "cycles", "proposer_passes", "verifier_passes", "judged", "non_ar"):
            samples[f"{name}_{count}"] = [float(getattr(outcome, count)) for outcome in each]
    base = figures[f"{mars}_tokens_per_cycle"]
    ratios = {
        f"{name}_over_{mars}_tokens_per_cycle": figures[f"{name}_tokens_per_cycle"] / base
        for name in outcomes
        if name != mars
    }
    return figures, ratios, samples
