"""The Serve application: Router, Proposer and Verifier, each with its own replicas and resources."""

from pathlib import Path
from typing import Any

from ray import serve
from ray.serve import Application
from ray.serve.config import RequestRouterConfig
from ray.serve.schema import LoggingConfig

from prove_core.types import Role
from services.config.observability import Observed
from services.config.settings import Deployment, ModelSettings, Settings, load_settings, parse_settings
from services.placement.request_router import WishedOrder
from services.replicas.replica import EngineReplica
from services.router import Router
from services.scaling.deploy import autoscaling_config

APP_NAME = "prove"
MORE_THAN_EVER_USED = 64  # the Router queues and answers 429 itself; Serve's own limit would queue in silence
HEALTH_PERIOD_S = 1.0  # Serve learns of a death by the next check
HEALTH_TIMEOUT_S = 20.0  # of three checks in a row: a replica that is suspended or cut off


def build(args: dict[str, Any]) -> Application:
    """For `serve run` and `serve deploy`: `{"config": FILE}`, or the settings themselves. Raises `SettingsError`."""
    if args.keys() == {"config"}:
        return application(load_settings(Path(args["config"])))
    return application(parse_settings(args, "args"))


def application(settings: Settings) -> Application:
    """The three deployments, bound together."""
    observed, limit = settings.observed, settings.healing.pass_limit_s
    proposer = model_deployment(Role.PROPOSER, settings.proposer, observed, limit)
    verifier = (
        None if settings.verifier is None else model_deployment(Role.VERIFIER, settings.verifier, observed, limit)
    )
    waiting = settings.admission.max_queued_requests
    ingress = serve.deployment(serve.ingress()(Router)).options(name="Router", **_options(settings.router, waiting))
    return ingress.bind(settings.model_dump(mode="json", exclude_unset=True), proposer, verifier)


def model_deployment(role: Role, settings: ModelSettings, observed: Observed, pass_limit_s: float) -> Application:
    """The replicas of one role."""
    options = _options(settings) | {"request_router_config": RequestRouterConfig(request_router_class=WishedOrder)}
    deployment = serve.deployment(EngineReplica).options(name=role.value.capitalize(), **options)
    part = settings.model_dump(mode="json", exclude_unset=True, exclude={"autoscaling"})
    return deployment.bind(role.value, part, observed.model_dump(mode="json"), pass_limit_s)


def _options(settings: Deployment, waiting: int = 0) -> dict[str, Any]:
    resources = settings.resources
    options: dict[str, Any] = {
        "ray_actor_options": {"num_cpus": resources.num_cpus, "num_gpus": resources.num_gpus},
        "max_ongoing_requests": settings.max_ongoing_requests + waiting + MORE_THAN_EVER_USED,
        "max_queued_requests": -1,
        "health_check_period_s": HEALTH_PERIOD_S,
        "health_check_timeout_s": HEALTH_TIMEOUT_S,
        "graceful_shutdown_timeout_s": settings.drain_s,
        "graceful_shutdown_wait_loop_s": 0.5,
        "logging_config": LoggingConfig(enable_access_log=False, log_level="WARNING"),
    }
    if settings.bundles is not None:
        options["placement_group_bundles"] = settings.bundles
        options["placement_group_strategy"] = resources.placement_group_strategy
    if settings.autoscaling is None:
        return options | {"num_replicas": settings.replicas}
    return options | {"autoscaling_config": autoscaling_config(settings.autoscaling)}
