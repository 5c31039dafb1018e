"""Opening a lake wherever it is: in this process, or behind a server."""

from __future__ import annotations

import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace import settings as settings_module
from headrace.client import RemoteLake, connect
from headrace.client.http import Http, require_whole_login, trusting, trusting_only
from headrace.errors import LakeLocked
from headrace.settings import Settings
from headrace.storage import address
from headrace.storage.address import Address

if TYPE_CHECKING:
    from headrace.engine import Lake

_STARTING_SECONDS = 120.0
_LOOK_SECONDS = 0.2

__all__ = [
    "connect", "connect_service", "local_door", "open", "open_folder", "owner_door", "service_door", "service_of",
]  # fmt: skip


def open(path: str | Path | None = None, **settings: Any) -> Lake | RemoteLake:
    """Open the lake in this folder, creating it if need be.

    One process at a time holds a lake. When that is a server, the lake is used through it; and the setting `service`
    names a server to use instead of a folder.
    """
    chosen = settings_module.load(path, **settings)
    if service_of(chosen) is not None:
        return connect_service(chosen)
    return open_folder(chosen)


def open_folder(chosen: Settings) -> Lake | RemoteLake:
    """The lake in its folder, through its server if one runs."""
    found = address.read(chosen.path)
    if found is not None:
        return _connect_local(found, chosen)
    from headrace.engine import Lake

    try:
        return Lake(chosen)
    except LakeLocked:
        # A server may have been starting: it takes the lock first and tells its address when it listens.
        found = address.read(chosen.path)
        if found is None:
            raise
        return _connect_local(found, chosen)


def service_of(chosen: Settings) -> str | None:
    """The server to use, if the settings say so. A folder that was given as an argument wins over a service that was
    not: who names a folder means that one, whatever the surroundings say."""
    if chosen.service == "embedded":
        return None
    if chosen.origin("path") == "argument" and chosen.origin("service") != "argument":
        return None
    return chosen.service


def connect_service(chosen: Settings) -> RemoteLake:
    """Connect to the server that the settings name."""
    return RemoteLake(service_door(chosen), schema=_schema(chosen))


def _connect_local(found: Address, chosen: Settings) -> RemoteLake:
    """Connect to the server that holds the lake's folder. One that is starting is waited for."""
    door = local_door(found, chosen)
    deadline = time.monotonic() + _STARTING_SECONDS
    while door.health() == "starting" and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    return RemoteLake(door, schema=_schema(chosen))


def service_door(chosen: Settings) -> Http:
    """The way to the server that the settings name."""
    return Http(
        chosen.service,
        username=chosen.username,
        password=chosen.password,
        token=chosen.token,
        trust=trusting(chosen.ca_file),
    )


def local_door(found: Address, chosen: Settings) -> Http:
    """The way to the server that holds the lake's folder: as the user that the settings name, or else as the owner of
    the lake."""
    if chosen.token is None:
        require_whole_login(chosen.username, chosen.password)
        if chosen.username is None:
            return owner_door(found, chosen)
    return Http(
        found.url,
        username=chosen.username,
        password=chosen.password,
        token=chosen.token,
        trust=_trust_local(found, chosen),
    )


def owner_door(found: Address, chosen: Settings) -> Http:
    """The way to the server that holds the lake's folder, as the owner of the lake, whoever the settings name."""
    return Http(found.url, token=found.token, trust=_trust_local(found, chosen), owner=True)


def _trust_local(found: Address, chosen: Settings) -> ssl.SSLContext | None:
    return trusting_only(found.certificate) if found.certificate else trusting(chosen.ca_file)


def _schema(chosen: Settings) -> str | None:
    """A schema that somebody asked for; else the server's own default is the current one."""
    return chosen.schema_name if chosen.origin("schema") != "default" else None
