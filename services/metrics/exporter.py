"""The HTTP server of one replica's metrics: its own port, on the node's address, never behind the load balancer."""

import asyncio
import threading
from typing import Self
from wsgiref.simple_server import WSGIServer

import ray
from prometheus_client import start_http_server
from ray import serve

from services.metrics.metric import Part
from services.metrics.registry import Identity, Registry


class Exporter:
    """Serves `/metrics` from threads of its own until stopped."""

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:
        self._server = server
        self._thread = thread

    @classmethod
    async def start(cls, registry: Registry, host: str) -> Self:
        """Listen on any free port of `host`."""
        # in a thread: the standard library looks up the host's full name, which can take seconds
        return cls(*await asyncio.to_thread(start_http_server, 0, host, registry.collector))

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_port)

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def replica_registry(role: Part, model: str) -> Registry:
    """An empty registry for the Serve replica that this process is."""
    return Registry(Identity(role, serve.get_replica_context().replica_id.unique_id, model))


async def published(registry: Registry) -> dict[str, int]:
    """Start exporting on this node's address; what to add to the replica's metadata."""
    exporter = await Exporter.start(registry, ray.util.get_node_ip_address())
    return {"metrics_port": exporter.port}
