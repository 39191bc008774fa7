"""Autoscaling settings as Ray Serve takes them."""

import warnings

from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from services.scaling.serve_policy import ProposerPolicy, VerifierPolicy
from services.scaling.settings import Autoscaling, ProposerAutoscaling, RouterAutoscaling, VerifierAutoscaling

METRICS_INTERVAL_S = 1.0
LOOK_BACK_S = 5.0


def autoscaling_config(settings: Autoscaling) -> AutoscalingConfig:
    """Bounds and delays, with the policy of the role that these settings belong to."""
    with warnings.catch_warnings():  # deprecated in favour of variables that do nothing in this version of Ray
        warnings.simplefilter("ignore", DeprecationWarning)
        return AutoscalingConfig(
            min_replicas=settings.min,
            max_replicas=settings.max,
            upscale_delay_s=settings.upscale_delay_s,
            downscale_delay_s=settings.downscale_delay_s,
            metrics_interval_s=METRICS_INTERVAL_S,
            look_back_period_s=LOOK_BACK_S,
            **_policy(settings),
        )


def _policy(settings: Autoscaling) -> dict[str, object]:
    match settings:
        case RouterAutoscaling():
            return {"target_ongoing_requests": settings.target_ongoing_requests}
        case ProposerAutoscaling():
            kwargs = settings.model_dump(include={"target_sessions", "target_kv", "max_wait_s"})
            return {"policy": AutoscalingPolicy(policy_function=ProposerPolicy, policy_kwargs=kwargs)}
        case VerifierAutoscaling():
            kwargs = settings.model_dump(include={"target_busy", "target_kv", "max_wait_s"})
            return {"policy": AutoscalingPolicy(policy_function=VerifierPolicy, policy_kwargs=kwargs)}
    raise AssertionError(f"no policy for {type(settings).__name__}")
