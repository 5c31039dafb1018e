"""Where the server of a lake listens, for the programs of the same machine.

The file holds a token that opens every door of the lake, so only its owner may read it. It is believed only while the
process that it names holds the lake's lock: a file that a killed server left behind leads nowhere, whoever listens on
its port by now.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.errors import EnvironmentFault
from headrace.storage.lock import holder

FILE_NAME = "server.json"
_MAX_BYTES = 65536


@dataclass(frozen=True)
class Address:
    """A running server."""

    url: str
    pid: int
    token: str = field(repr=False)
    certificate: str | None = None
    """The file of the certificate that it shows, when it speaks TLS: its name need not be that of this machine."""


def write(path: str | Path, address: Address) -> None:
    """Tell where the lake's server is. The file appears whole, and is never readable by others."""
    file = Path(path) / FILE_NAME
    draft = file.with_name(f".{FILE_NAME}.{os.getpid()}")
    content = {"url": address.url, "pid": address.pid, "token": address.token, "certificate": address.certificate}
    try:
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(content, stream)
        os.replace(draft, file)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise EnvironmentFault(
            f"The server's address cannot be written to {file}: {error.strerror or error}.",
            hint="Check that the lake's folder can be written and its disk is not full.",
        ) from error


def read(path: str | Path) -> Address | None:
    """The server that holds the lake; None when none does."""
    found = _content(Path(path) / FILE_NAME)
    if found is None:
        return None
    holding = holder(path)
    return found if holding is not None and holding.pid == found.pid else None


def remove(path: str | Path) -> None:
    """This process's server listens no more. Another's file is left alone."""
    file = Path(path) / FILE_NAME
    found = _content(file)
    if found is None or found.pid != os.getpid():
        return
    try:
        file.unlink(missing_ok=True)
    except OSError:
        pass  # It is not believed without the lock anyway.


def _content(file: Path) -> Address | None:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as stream:
        about = os.fstat(descriptor)
        if about.st_mode & 0o077 or about.st_uid not in (os.getuid(), 0):
            return None  # Others have written it, or may have read the token.
        try:
            content: Any = json.loads(stream.read(_MAX_BYTES))
        except (OSError, ValueError):
            return None
    if not isinstance(content, Mapping):
        return None
    url, pid, token = content.get("url"), content.get("pid"), content.get("token")
    certificate = content.get("certificate")
    if not isinstance(url, str) or not isinstance(token, str) or type(pid) is not int:
        return None
    return Address(url, pid, token, certificate if isinstance(certificate, str) else None)
