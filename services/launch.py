"""Starting the application on a Ray of its own, or on the cluster that RAY_ADDRESS names, until it answers."""

import contextlib
import logging
import math
import os
import sys
import time
import urllib.request
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from prove_core.model.progress import SILENT, Progress
from services.address import LaunchError, free_port, reachable
from services.config.preflight import check_sizes, configured_pools, read_checkpoints
from services.config.settings import Settings
from services.security.keys import Keys

__all__ = ["LaunchError", "Running", "launch"]

OBJECT_STORE_BYTES = 100 << 20  # messages travel over channels; Ray's object store stays all but empty
POLL_S = 0.2
ANSWER_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Running:
    """A running application. As a context manager it stops at the end."""

    url: str

    def stop(self) -> None:
        """Take the application down, after its running requests, and Ray with it when it is ours."""
        import ray  # noqa: PLC0415
        from ray import serve  # noqa: PLC0415

        from services.app import APP_NAME  # noqa: PLC0415

        serve.delete(APP_NAME)
        ray.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def launch(settings: Settings, progress: Progress = SILENT) -> Running:
    """Start everything and return once it answers. Raises `LaunchError`, `SettingsError` and the like, in one line."""
    port = free_port(settings.host, settings.port)
    if "RAY_ADDRESS" not in os.environ:  # else Routers run elsewhere, and say the same when they start
        Keys.load(settings.security)
    info = read_checkpoints(settings, progress)
    check_sizes(settings, info.context_length, configured_pools(settings))
    running = Running(f"http://{reachable(settings.host)}:{port}")
    progress.stage("starting Ray")
    try:
        _start_ray(settings, port)
        _deploy(settings, progress)
        _await_answer(running.url)
    except BaseException:
        _abandon()
        raise
    return running


def _abandon() -> None:
    """Undo a start wherever it failed or was interrupted. Nothing is served yet, so nothing is waited for."""
    ray = sys.modules.get("ray")  # an interrupted import leaves none
    if ray is None:
        return
    if ray.is_initialized() and "RAY_ADDRESS" in os.environ:
        from ray import serve  # noqa: PLC0415

        from services.app import APP_NAME  # noqa: PLC0415

        with contextlib.suppress(Exception):  # without a controller there is no application
            serve.delete(APP_NAME, _blocking=False)
    ray.shutdown()


def _start_ray(settings: Settings, port: int) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's workers are nice by default: any other program would then slow down every pass, and every restart.
    os.environ.setdefault("RAY_worker_niceness", "0")
    import ray  # noqa: PLC0415 - after the environment is set
    from ray import serve  # noqa: PLC0415
    from ray.serve.config import HTTPOptions  # noqa: PLC0415
    from ray.serve.schema import LoggingConfig  # noqa: PLC0415

    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    if "RAY_ADDRESS" not in os.environ:
        ray.init(
            address="local",  # never another Ray that happens to run here
            num_cpus=max(os.cpu_count() or 1, _cpus(settings)),
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=OBJECT_STORE_BYTES,
        )
    else:
        ray.init(log_to_driver=False, logging_level=logging.ERROR)
    # No request timeout of the proxy: it would cut running streams. The Router keeps the deadline.
    serve.start(
        http_options=HTTPOptions(host=settings.host, port=port, request_timeout_s=None),
        logging_config=LoggingConfig(enable_access_log=False, log_level="WARNING"),
    )


def _deploy(settings: Settings, progress: Progress) -> None:
    from ray import serve  # noqa: PLC0415

    from services.app import APP_NAME, application  # noqa: PLC0415

    progress.stage("loading models")
    target = serve.RunTarget(application(settings), name=APP_NAME, route_prefix="/")
    serve.run_many([target], wait_for_ingress_deployment_creation=False, wait_for_applications_running=False)
    shown = ""
    while True:
        status = serve.status().applications[APP_NAME]
        if status.status == "RUNNING":
            return
        states = {name: deployment.status.value for name, deployment in status.deployments.items()}
        if status.status in ("DEPLOY_FAILED", "UNHEALTHY"):
            raise LaunchError(_reason({name: deployment.message for name, deployment in status.deployments.items()}))
        waiting = ", ".join(name for name, state in states.items() if state != "HEALTHY")
        if waiting != shown:
            shown = waiting
            progress.stage(f"starting {waiting}")
        time.sleep(POLL_S)


def _await_answer(url: str) -> None:
    """The proxy learns of the application a moment after it runs; until then it answers 404."""
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=ANSWER_TIMEOUT_S):
            return
        time.sleep(POLL_S)
    raise LaunchError(f"the application runs, but {url}/health has not answered within {ANSWER_TIMEOUT_S:g} s")


def _reason(messages: dict[str, str]) -> str:
    """The last line of the first deployment's complaint: where Python puts the error itself."""
    for name, message in messages.items():
        lines = [line.strip() for line in message.splitlines() if line.strip()]
        if lines:
            return f"{name} did not start: {lines[-1]}"
    return "the application did not start; see Ray's logs"


def _cpus(settings: Settings) -> int:
    """What the deployments ask for at least, so that a small machine still places them."""
    parts = [settings.router, settings.proposer, *([settings.verifier] if settings.verifier else [])]
    return math.ceil(sum(part.cpus for part in parts))
