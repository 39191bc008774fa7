"""The address that the API listens on. Light to import: a taken port is reported before anything heavy is."""

import socket

from prove_core.errors import ProveError


class LaunchError(ProveError):
    """The application did not start; the message says which part and why."""


def free_port(host: str, port: int) -> int:
    """`port`, or any free one for 0. Raises `LaunchError` when it is taken."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            reason = error.strerror or str(error)
            raise LaunchError(f"cannot listen on {host}:{port}: {reason}; choose another host or port") from error
        free: int = sock.getsockname()[1]
        return free


def reachable(host: str) -> str:
    """A host name under which a client on this machine reaches a server that listens on `host`."""
    return "127.0.0.1" if host in ("0.0.0.0", "::") else host
