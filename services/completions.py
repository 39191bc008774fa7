"""A chat-completions request from its parsed body to a plan that is known to fit: model, prompt, limits, roles."""

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from prove_core.decoding.cycle import TWO_MODEL_MODES
from prove_core.decoding.sampling import check_logprobs, check_samples
from prove_core.errors import PoolExhausted, RequestError
from prove_core.model.info import CheckpointInfo
from prove_core.text.context import completion_limit
from prove_core.text.prompt import PromptRenderer
from prove_core.types import DecodingParams, Limits, Mode, Role, TokenIds
from services.admission.reception import Demand, Reception
from services.api.errors import model_not_found, timed_out
from services.api.limits import check_limits, check_may_wait, check_prompt
from services.api.replies import Head, ServedDecoding
from services.api.schema import ChatCompletionRequest
from services.api.streaming import Events, Summary
from services.config.settings import Settings
from services.metrics.healing import HealingMetrics
from services.metrics.requests import RequestMeter, RequestMetrics
from services.metrics.router import RouterMetrics
from services.placement.booking import PlacingLessor
from services.placement.fleet import Fleet, Report
from services.run import Plan, RequestRun
from services.sessions.factory import SessionFactory
from services.telemetry.access import tell_refusal, told
from services.telemetry.origin import Origin
from services.telemetry.traces import traced

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

LONG_TEXT = 50_000  # characters; tokenising more than that takes long enough to stall other streams


@dataclass(frozen=True, slots=True)
class RoleAccess:
    """How to reach a role: where leases come from, the tokens that one of its KV pools holds, its replicas' reports."""

    lessor: PlacingLessor
    capacity: int
    report: Report | None = None


class ChatService:
    """Everything that the Router does between HTTP and the replicas. Knows neither Ray nor the web framework."""

    def __init__(
        self,
        settings: Settings,
        info: CheckpointInfo,
        roles: Mapping[Role, RoleAccess],
        metrics: RouterMetrics,
        tracer: "Tracer | None" = None,
    ) -> None:
        self.settings = settings
        self.metrics = RequestMetrics(metrics)
        self._tracer = tracer
        self._info = info
        self._roles = roles
        self._renderer = PromptRenderer(info.tokenizer)
        self._sessions = SessionFactory(settings.healing, HealingMetrics(metrics))
        self._defaults = settings.params()
        self.reception = _reception(settings, roles)
        _show(self.reception, metrics)

    @property
    def running(self) -> int:
        """Requests that are being decoded."""
        return self.reception.running

    @property
    def decoding(self) -> ServedDecoding:
        """What requests may ask for here, and the defaults."""
        return ServedDecoding.of(self._defaults, [mode for mode in Mode if self._serves(mode)])

    def _serves(self, mode: Mode) -> bool:
        params = replace(self._defaults, mode=mode)
        try:
            self._roles_of(params)
            self._info.check_proposes(params)
        except RequestError:
            return False
        return True

    async def plan(self, request: ChatCompletionRequest, origin: Origin) -> Plan:
        """Check the request against model, context and pools. Raises `ApiError`, `RequestError`."""
        if request.model != self.settings.served_name:
            raise model_not_found(request.model)
        check_limits(request, self.settings.limits)
        params = request.params(self._defaults)
        roles = self._roles_of(params)
        self._info.check_proposes(params)
        request.check_token_ids(self._info.vocab_size)
        prompt = await self._prompt(request)
        check_prompt(len(prompt), self.settings.limits)
        sampling = request.sampling(len(prompt))
        check_samples(params, sampling)
        check_logprobs(params, sampling)
        limits = Limits(
            max_tokens=self._max_tokens(len(prompt), request, roles),
            stop_ids=self._stop_ids(request),
            min_tokens=request.min_tokens or 0,
        )
        check_may_wait(len(prompt), request, self.settings.admission)
        if limits.min_tokens > limits.max_tokens:
            raise RequestError(
                f"min_tokens ({limits.min_tokens}) exceeds the {limits.max_tokens} tokens there is room for",
                "min_tokens",
            )
        choices = request.n or 1
        head = Head.new(self.settings.served_name, choices)
        priority = request.priority or 0
        most = self.settings.limits.request_timeout_s
        timeout_s = most if request.timeout is None else min(request.timeout, most)
        return Plan(origin, head, prompt, params, limits, sampling, request.stop or (), roles, timeout_s, priority)

    async def events(self, plan: Plan) -> Events:
        """Run the plan once there is room. Closing the events cancels it and frees its pages. Raises what happens."""
        meter = self.metrics.request(plan.params.mode, len(plan.prompt), plan.head.choices, plan.origin.arrived)
        with told(meter), traced(self._tracer, plan.origin, meter), meter.measured():
            async with contextlib.aclosing(self._run(plan, meter)) as events:
                async for event in events:
                    if isinstance(event, Summary):
                        self.reception.completed(event.usage.completion_tokens / plan.head.choices)
                    yield event

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Around what may refuse a request before `events`."""
        try:
            yield
        except BaseException as error:
            self.refused(error)
            raise

    def refused(self, error: BaseException) -> None:
        """Count and log a request that was refused before `events`."""
        tell_refusal(error)
        self.metrics.refused(error)

    async def _run(self, plan: Plan, meter: RequestMeter) -> Events:
        demand = Demand(plan.prompt, plan.limits.max_tokens, plan.head.choices, plan.roles, plan.priority)
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(plan.timeout_s - (time.perf_counter() - plan.origin.arrived)):
                    places = await stack.enter_async_context(self.reception.admitted(demand))
            except TimeoutError:
                raise timed_out(plan.timeout_s) from None
            run = RequestRun(plan, places, self._sessions, self._info.tokenizer, meter)
            async for event in await stack.enter_async_context(contextlib.aclosing(run.events())):
                yield event

    def _roles_of(self, params: DecodingParams) -> tuple[Role, ...]:
        if params.mode not in TWO_MODEL_MODES:
            return (Role.PROPOSER,)
        if Role.VERIFIER not in self._roles:
            raise RequestError(f"decoding.mode '{params.mode.value}' needs a verifier; none is served", "decoding.mode")
        return (Role.PROPOSER, Role.VERIFIER)

    async def _prompt(self, request: ChatCompletionRequest) -> TokenIds:
        chat = request.chat()
        if sum(len(message.content) for message in chat) > LONG_TEXT:
            return tuple(await asyncio.to_thread(self._renderer.render, chat))
        return tuple(self._renderer.render(chat))

    def _max_tokens(self, prompt: int, request: ChatCompletionRequest, roles: tuple[Role, ...]) -> int:
        asked = request.completion_limit
        limit = completion_limit(prompt, asked, self._info.context_length, request.completion_field)
        role = min(roles, key=lambda role: self._roles[role].capacity)
        capacity = self._roles[role].capacity
        needed = prompt + (1 if asked is None else asked)
        if needed > capacity:
            raise PoolExhausted(
                f"The KV cache of the {role.value} holds {capacity} tokens, and the request needs at least {needed} "
                f"({prompt} in the messages, {needed - prompt} in the completion)",
                "messages" if prompt >= capacity else request.completion_field,
            )
        most = self.settings.limits.max_completion_tokens
        return min(limit, capacity - prompt, limit if most is None else most)

    def _stop_ids(self, request: ChatCompletionRequest) -> frozenset[int]:
        own = frozenset(request.stop_token_ids or ())
        return own if request.ignore_eos else own | frozenset(self._info.eos_ids)


def _reception(settings: Settings, roles: Mapping[Role, RoleAccess]) -> Reception:
    served = {Role.PROPOSER: settings.proposer, Role.VERIFIER: settings.verifier}
    fleets = {}
    for role, access in roles.items():
        deployment = served[role]
        assert deployment is not None, f"no settings for the {role}"
        fleets[role] = Fleet(
            access.lessor,
            access.report,
            page_size=deployment.engine.cache.page_size,
            most_sessions=deployment.max_ongoing_requests,
            grant_limit_s=settings.healing.silence_limit_s,
        )
    return Reception(settings.admission, settings.router.max_ongoing_requests, fleets)


def _show(reception: Reception, metrics: RouterMetrics) -> None:
    metrics.running.set_function(lambda: reception.running)
    metrics.waiting.set_function(lambda: reception.waiting)
    metrics.queued_tokens.set_function(lambda: reception.queued_tokens)
