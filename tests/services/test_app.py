"""How settings become deployments, and what is refused before anything starts. No Ray is started here."""

import socket
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve import Application
from ray.serve.schema import ServeDeploySchema

from prove_core.errors import CheckpointError
from services.app import build
from services.config.settings import SettingsError, parse_settings
from services.launch import LaunchError, launch

DEPLOY = Path(__file__).parents[2] / "deploy"


def _deployments(application: Application) -> dict[str, Any]:
    """Every bound deployment by name."""
    root = application._bound_deployment
    bound = [arg._bound_deployment for arg in root.init_args if isinstance(arg, Application)]
    return {deployment.name: deployment for deployment in (root, *bound)}


def test_the_three_roles_are_deployments_of_their_own() -> None:
    model = {"checkpoint": "default-proposer"}
    bundles = [{"CPU": 1, "GPU": 1}, {"GPU": 1}]
    gpu = {"num_cpus": 1, "num_gpus": 1, "placement_group_bundles": bundles, "placement_group_strategy": "STRICT_PACK"}
    deployments = _deployments(
        build(
            {
                "router": {"replicas": 2},
                "proposer": {"engine": {"model": model}, "resources": gpu},
                "verifier": {"engine": {"model": model}, "autoscaling": {"min": 1, "max": 3}},
            }
        )
    )
    assert deployments.keys() == {"Router", "Proposer", "Verifier"}
    assert deployments["Router"].num_replicas == 2
    proposer = deployments["Proposer"]._replica_config
    assert proposer.placement_group_bundles == bundles
    assert proposer.placement_group_strategy == "STRICT_PACK"
    assert proposer.ray_actor_options["num_gpus"] == 1
    assert deployments["Verifier"]._deployment_config.autoscaling_config.max_replicas == 3


def test_a_shared_out_proposer_and_a_whole_verifier() -> None:
    deployments = _deployments(build({"config": str(DEPLOY / "gpu-tp2.yaml")}))
    proposer, verifier = (deployments[name]._replica_config for name in ("Proposer", "Verifier"))
    assert proposer.placement_group_bundles == [{"CPU": 2.0, "GPU": 1.0}] * 2
    assert proposer.placement_group_strategy == "STRICT_PACK"
    assert proposer.ray_actor_options["num_gpus"] == 1
    assert verifier.placement_group_bundles is None


def test_without_a_verifier_there_are_two() -> None:
    assert _deployments(build({"verifier": None})).keys() == {"Router", "Proposer"}


def test_a_file_can_be_named_instead() -> None:
    assert len(_deployments(build({"config": str(DEPLOY / "local.yaml")}))) == 3


def test_the_cluster_configuration_is_valid() -> None:
    schema = ServeDeploySchema.model_validate(yaml.safe_load((DEPLOY / "serve.yaml").read_text()))
    (application,) = schema.applications
    assert application.import_path == "services.app:build"
    assert len(_deployments(build(application.args))) == 3


def test_unknown_keys_of_a_deployment_are_errors() -> None:
    with pytest.raises(SettingsError, match=r"^args: router.num_replicas: unknown key; allowed: replicas, "):
        build({"router": {"num_replicas": 2}})


def test_an_unknown_checkpoint_is_refused_before_ray_starts() -> None:
    data = {"port": 0, "verifier": None, "proposer": {"engine": {"model": {"checkpoint": "./no/such/folder"}}}}
    with pytest.raises(CheckpointError, match="no/such/folder"):
        launch(parse_settings(data, "test"))


def test_a_taken_port_is_refused_before_ray_starts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LaunchError, match=rf"cannot listen on 127.0.0.1:{port}: .*choose another"):
            launch(parse_settings({"port": port}, "test"))


def test_how_long_replicas_drain_and_passes_may_take_is_what_the_settings_say() -> None:
    deployments = _deployments(
        build({"router": {"drain_s": 60}, "verifier": {"drain_s": 5}, "healing": {"pass_limit_s": 90}})
    )
    drains = {name: one._deployment_config.graceful_shutdown_timeout_s for name, one in deployments.items()}
    assert drains == {"Router": 60, "Proposer": 20, "Verifier": 5}
    assert [deployments[name].init_args[-1] for name in ("Proposer", "Verifier")] == [90, 90]
