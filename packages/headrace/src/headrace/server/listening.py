"""The port that a server listens on. Loads nothing of the server, so that it can be tried before one is started."""

from __future__ import annotations

import socket

from headrace.errors import BadSetting, EnvironmentFault

_BACKLOG = 2048


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there; the caller closes it."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = found[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise BadSetting(
            f"The server cannot listen on {host}: {error.strerror or error}.", hint="Choose another with --host."
        ) from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise EnvironmentFault(
            f"The server cannot listen on {host}, port {port}: {error.strerror or error}.",
            hint=f"Another program may listen there. Choose another port: `headrace up --port {_another(port)}`, or "
            "--port 0 for any that is free.",
        ) from None
    return listening


def _another(port: int) -> int:
    """
    >>> _another(8910), _another(65535), _another(80)
    (8911, 65534, 8080)
    """
    return 8000 + port if port < 1024 else port + 1 if port < 65535 else port - 1
