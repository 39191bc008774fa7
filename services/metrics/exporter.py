"""The HTTP server of one replica's metrics: its own port, on the node's address, never behind the load balancer."""

import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import ray
from prometheus_client import make_wsgi_app
from ray import serve

from services.metrics.metric import Part
from services.metrics.registry import Identity, Registry

PLAIN_TEXT = "text/plain;version=0.0.4"

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Exporter:
    """Serves `/metrics` on any free port of `host`, from threads of its own, until stopped."""

    def __init__(self, registry: Registry, host: str) -> None:
        self._server = _Server(host, _as_plain_text(make_wsgi_app(registry.collector)))
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_port)

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, host: str, app: App) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, 0), _Silent)
        self.set_app(app)

    def server_bind(self) -> None:
        """As the base class, which also looks up the host's full name: that can take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """A scrape is nobody's news."""


def _as_plain_text(app: App) -> App:
    """The format of 0.0.4 for everybody: in later ones Prometheus' own client writes `_` for the `:` of our names."""

    def plain(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        return app({**environ, "HTTP_ACCEPT": PLAIN_TEXT}, start_response)

    return plain


def replica_registry(role: Part, model: str) -> Registry:
    """An empty registry for the Serve replica that this process is."""
    return Registry(Identity(role, serve.get_replica_context().replica_id.unique_id, model))


def published(registry: Registry) -> dict[str, int]:
    """Start exporting on this node's address; what to add to the replica's metadata."""
    return {"metrics_port": Exporter(registry, ray.util.get_node_ip_address()).port}
