"""A proposer and, where needed, a verifier in this process: what `prove generate` talks to."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.table import Table

from prove_core.config import EngineConfig
from prove_core.engine.build import BuiltEngine, build_engine
from prove_core.engine.engine import Engine
from prove_core.engine.local import complete
from prove_core.errors import CheckpointError
from prove_core.model.compatibility import check_compatible
from prove_core.model.info import CheckpointInfo
from prove_core.model.progress import Progress
from prove_core.statistics import CompletionStatistics
from prove_core.text.completion import CompletionText
from prove_core.text.context import completion_limit
from prove_core.text.prompt import Message, PromptRenderer
from prove_core.types import DecodingParams, Finished, FinishReason, GenerateRequest, Limits, Role
from services.api.sampling import SamplingOptions


@dataclass
class LocalRun:
    """One completion: consume `text`, then ask for the `summary`."""

    text: Iterator[str]
    statistics: CompletionStatistics
    reason: FinishReason | None = field(default=None)

    def summary(self, seconds: float) -> Table:
        """What decoding did, as a table of two columns."""
        counts = self.statistics
        cost = counts.cost
        table = Table(box=None, show_header=False, pad_edge=False, style="dim")
        rows = {
            "mode": counts.mode.value,
            "tokens": f"{counts.committed_tokens} in {seconds:.2f} s ({counts.committed_tokens / seconds:.1f}/s)",
            "cycles": f"{cost.cycles} ({counts.committed_tokens / max(cost.cycles, 1):.2f} tokens per cycle)",
            "passes": f"proposer {cost.proposer_passes}, verifier {cost.verifier_passes}",
        }
        if counts.draft_tokens:
            rate = counts.accepted_tokens / counts.draft_tokens
            rows["accepted"] = f"{counts.accepted_tokens} of {counts.draft_tokens} candidates ({rate:.0%})"
            rows["by position"] = " ".join(f"{n / counts.drafts:.2f}" for n in counts.accepted_per_position)
        if self.reason is not None:
            rows["finish reason"] = self.reason.value
        for name, value in rows.items():
            table.add_row(name, value)
        return table


class LocalPair:
    """Loaded engines by role."""

    def __init__(self, engines: dict[Role, Engine], info: CheckpointInfo) -> None:
        self._engines = engines
        self._info = info

    @classmethod
    def load(cls, configs: tuple[EngineConfig, EngineConfig | None], progress: Progress, *, plans: bool) -> "LocalPair":
        """Load the proposer and, if configured, the verifier. `plans`: they shall decode in mode `auto`.

        Raises CheckpointError, IncompatibleModels ...
        """
        proposer_config, verifier_config = configs
        proposer = build_engine(proposer_config, name="proposer", progress=progress, plans=plans)
        info = _info(proposer)
        engines = {Role.PROPOSER: proposer.engine}
        if verifier_config is not None:
            verifier = build_engine(verifier_config, name="verifier", progress=progress, plans=False)
            check_compatible(info, _info(verifier))
            engines[Role.VERIFIER] = verifier.engine
        return cls(engines, info)

    def chat(self, prompt: str, params: DecodingParams, max_tokens: int, sampling: SamplingOptions) -> LocalRun:
        """Start one completion of a chat with a single user message. Raises RequestError."""
        self._info.check_proposes(params)
        ids = PromptRenderer(self._info.tokenizer).render([Message("user", prompt)])
        limit = completion_limit(len(ids), max_tokens, self._info.context_length)
        limits = Limits(limit, frozenset(self._info.eos_ids))
        session = f"local-{threading.get_ident()}"
        request = GenerateRequest(session, tuple(ids), params, limits, sampling.sampling(len(ids)))
        run = LocalRun(iter(()), CompletionStatistics(params.mode))
        run.text = self._pieces(request, run)
        return run

    def _pieces(self, request: GenerateRequest, run: LocalRun) -> Iterator[str]:
        text = CompletionText(self._info.tokenizer)
        for event in complete(self._engines, request):
            if isinstance(event, Finished):
                run.statistics.ended(event)
                run.reason = event.reason
                break
            piece = text.feed(event)
            run.statistics.add(piece.step)
            yield piece.text
        yield text.finish()

    def stop(self) -> None:
        """End the engine threads."""
        for engine in self._engines.values():
            engine.stop()


def _info(built: BuiltEngine) -> CheckpointInfo:
    if built.info is None:
        raise CheckpointError("the null checkpoint has no text: use a real one")
    return built.info
