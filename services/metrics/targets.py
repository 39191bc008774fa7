"""Prometheus' HTTP service discovery: where each running replica exports its metrics."""

from collections.abc import Mapping, Sequence
from typing import Any

from services.metrics.metric import Part
from services.metrics.registry import Identity
from services.replicas.members import Replica

Target = dict[str, Any]
"""`{"targets": [host:port], "labels": {role, replica, model}}`, as http_sd wants it."""


def targets(replicas: Mapping[str, Sequence[Replica]], model: str) -> list[Target]:
    """The targets of all replicas that export, by deployment name."""
    return [
        _target(Identity(Part(name.lower()), replica.replica_id.unique_id, model), replica.replica_metadata)
        for name, found in sorted(replicas.items())
        for replica in found
        if "metrics_port" in replica.replica_metadata
    ]


def _target(identity: Identity, at: Mapping[str, Any]) -> Target:
    host = f"[{at['host']}]" if ":" in at["host"] else at["host"]
    return {"targets": [f"{host}:{at['metrics_port']}"], "labels": identity.labels}
