"""The RayService: its own fields, its pods by the Kubernetes schema, its Serve part by ours, and that replicas fit."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import ray
import yaml
from pydantic import ValidationError
from ray.serve.schema import ServeDeploySchema

from services.config.settings import Settings, parse_settings
from tests.deploy.rayservice import RayService

FILE = Path(__file__).parents[2] / "deploy/kuberay/rayservice.yaml"
KUBERNETES = "1.34"  # the schema's version
GPU = "nvidia.com/gpu"


def _data() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return data


def _service() -> RayService:
    return RayService.model_validate(_data())


def _settings() -> Settings:
    serve = yaml.safe_load(_service().spec.serve_config_v2)
    (application,) = ServeDeploySchema.model_validate(serve).applications
    assert application.import_path == "services.app:build"
    return parse_settings(application.args, str(FILE))


def _templates() -> dict[str, dict[str, Any]]:
    cluster = _service().spec.ray_cluster_config
    workers = {group.group_name: group.template for group in cluster.worker_group_specs}
    return {"head": cluster.head_group_spec.template, **workers}


def test_its_fields_are_kuberays() -> None:
    cluster = _service().spec.ray_cluster_config
    for group in cluster.worker_group_specs:
        assert group.min_replicas <= group.replicas <= group.max_replicas


def test_a_misspelt_field_is_refused() -> None:
    data = _data()
    data["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["minReplica"] = 1
    with pytest.raises(ValidationError, match="minReplica"):
        RayService.model_validate(data)


@pytest.mark.parametrize("group", _templates())
def test_pods_follow_the_kubernetes_schema(group: str) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": group}, **_templates()[group]}
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def test_a_misspelt_field_of_a_pod_is_refused() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, **_templates()["head"]}
    pod["spec"]["containers"][0]["imagePullPolice"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)


@pytest.mark.parametrize("group", _templates())
def test_mounts_have_volumes(group: str) -> None:
    pod = _templates()[group]["spec"]
    volumes = {volume["name"] for volume in pod.get("volumes", [])}
    mounts = {mount["name"] for container in pod["containers"] for mount in container.get("volumeMounts", [])}
    assert mounts == volumes


def test_the_images_ray_is_the_clusters() -> None:
    assert _service().spec.ray_cluster_config.ray_version == ray.__version__


def test_each_replica_fits_a_pod_and_all_that_may_be_fit_the_groups() -> None:
    """Cards of a bundle set with STRICT_PACK lie in one pod."""
    settings = _settings()
    groups = {group.group_name: group for group in _service().spec.ray_cluster_config.worker_group_specs}
    assert settings.verifier is not None
    for name, role in (("proposers", settings.proposer), ("verifiers", settings.verifier)):
        (container,) = groups[name].template["spec"]["containers"]
        cards = int(container["resources"]["limits"][GPU])
        bundles = role.bundles or [role.resources.bundle]
        assert sum(bundle.get("GPU", 0) for bundle in bundles) <= cards
        assert sum(bundle.get("CPU", 0) for bundle in bundles) <= float(container["resources"]["requests"]["cpu"])
        most = role.autoscaling.max if role.autoscaling else role.replicas
        assert most <= groups[name].max_replicas


def test_routers_find_the_keys() -> None:
    (container,) = _templates()["routers"]["spec"]["containers"]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    file = _settings().security.api_keys_file
    assert file is not None
    assert str(Path(file).parent) in mounts
