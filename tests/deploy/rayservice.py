"""KubeRay's RayService (ray.io/v1), as far as deploy/ uses it: documented fields, unknown ones refused.

Pod templates are left to the Kubernetes schema.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Fields(BaseModel):
    """Base: strict types, unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class Group(Fields):
    """What head and worker groups share. Ray's start parameters are strings, numbers too."""

    ray_start_params: dict[str, str]
    template: dict[str, Any]


class HeadGroup(Group):
    """`headGroupSpec`."""

    service_type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"


class WorkerGroup(Group):
    """One of `workerGroupSpecs`."""

    group_name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    replicas: int = Field(ge=0)
    min_replicas: int = Field(ge=0)
    max_replicas: int = Field(ge=1)
    num_of_hosts: int = Field(default=1, ge=1)


class AutoscalerOptions(Fields):
    """`autoscalerOptions`."""

    idle_timeout_seconds: int = Field(default=60, ge=0)
    upscaling_mode: Literal["Default", "Aggressive", "Conservative"] = "Default"


class RayCluster(Fields):
    """`rayClusterConfig`."""

    ray_version: str
    enable_in_tree_autoscaling: bool = False
    autoscaler_options: AutoscalerOptions = AutoscalerOptions()
    head_group_spec: HeadGroup
    worker_group_specs: list[WorkerGroup]


class Spec(Fields):
    """`spec`. The Serve configuration is YAML in a string."""

    serve_config_v2: str
    ray_cluster_config: RayCluster


class Metadata(Fields):
    """`metadata`."""

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?$")
    namespace: str = "default"


class RayService(Fields):
    """The whole object."""

    api_version: Literal["ray.io/v1"]
    kind: Literal["RayService"]
    metadata: Metadata
    spec: Spec
