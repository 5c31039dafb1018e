"""The keys of a profile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

from dbt.adapters.contracts.connection import Credentials
from dbt_common.dataclass_schema import ValidationError
from dbt_common.exceptions import DbtRuntimeError

from headrace.errors import NotAllowed
from headrace.names import require_plain

EMBEDDED = "embedded"
_DIALECTS = ("spark",)
_HOST = re.compile(r"\[[0-9a-fA-F:]+\](:\d+)?|[^\s/@?#:]+(:\d+)?")
_TAG_LENGTH = 255
_TEXTS = ("database", "schema", "service", "instance", "vcluster", "username", "password", "token", "query_tag")


@dataclass
class HeadraceCredentials(Credentials):
    """Where the lake is, and who asks. The workspace is what dbt calls a database."""

    database: str = "main"
    schema: str = ""
    service: str = ""
    instance: str | None = None
    vcluster: str | None = None
    username: str | None = None
    password: str | None = None
    token: str | None = None
    ca_file: str | None = None
    query_tag: str | None = None
    dialect: str = "spark"

    _ALIASES: ClassVar[dict[str, str]] = {
        "workspace": "database",
        "dbname": "database",
        "user": "username",
        "pass": "password",
        "host": "service",
        "path": "instance",
    }

    @classmethod
    def validate(cls, data: Any) -> None:
        """dbt's own message shows the value and not the key."""
        for key in _TEXTS:
            value = data.get(key)
            if value is not None and not isinstance(value, str):
                raise ValidationError(f"{'workspace' if key == 'database' else key} is no text: put it in quotes.")
        super().validate(data)

    def __post_init__(self) -> None:
        if self.dialect not in _DIALECTS:
            raise DbtRuntimeError(f"dialect is '{self.dialect}'; this version knows: {', '.join(_DIALECTS)}.")
        if self.query_tag is not None and not 0 < len(self.query_tag) <= _TAG_LENGTH:
            raise DbtRuntimeError(f"query_tag has {len(self.query_tag)} characters; write 1 to {_TAG_LENGTH}.")
        if not self.schema:
            raise DbtRuntimeError("schema is missing: name the one that dbt is to build in.")
        try:
            require_plain(self.schema, "schema")
            require_plain(self.database, "workspace")
        except NotAllowed as error:
            raise DbtRuntimeError(str(error)) from None
        if not self.service:
            raise DbtRuntimeError("service is missing: write http://host:port, https://host:port, or embedded.")
        if self.is_embedded:
            if not self.instance:
                raise DbtRuntimeError("With 'service: embedded', instance must name the lake's folder.")
            return
        self.service = address_of(self.service)
        self.token = (self.token or "").strip() or None  # An environment variable may be empty.
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise DbtRuntimeError("token has characters that no token has: copy it again.")
        if self.token is None and not (self.username and self.password):
            missing = "password" if self.username else "username"
            raise DbtRuntimeError(f"{missing} is missing or empty: give username and password, or token.")

    @property
    def is_embedded(self) -> bool:
        return self.service.strip().lower() == EMBEDDED

    @property
    def type(self) -> str:
        return "headrace"

    @property
    def unique_field(self) -> str:
        return self.instance or "lake" if self.is_embedded else self.service

    def connection_info(self, *, with_aliases: bool = False) -> Iterator[tuple[str, Any]]:
        """With what other adapters call the workspace, for macros that ask for `target.database`."""
        yield from super().connection_info(with_aliases=with_aliases)
        if with_aliases:
            yield from (("database", self.database), ("dbname", self.database))

    def _connection_keys(self) -> tuple[str, ...]:
        """What `dbt debug` shows: neither password nor token."""
        return ("service", "instance", "workspace", "vcluster", "username", "schema", "query_tag", "ca_file", "dialect")


def address_of(service: str) -> str:
    """A server's address with its scheme: plain HTTP is for this machine only.

    >>> address_of("127.0.0.1:8910"), address_of("lake.example.com"), address_of("http://lake:8910/")
    ('http://127.0.0.1:8910', 'https://lake.example.com', 'http://lake:8910')
    """
    text = service.strip().rstrip("/")
    if "://" not in text and _HOST.fullmatch(text):
        host = urlsplit(f"//{text}").hostname or ""
        here = host in ("localhost", "::1") or host.startswith("127.")
        return f"{'http' if here else 'https'}://{text}"
    if re.fullmatch(r"https?://[^\s/@?#]+", text):
        return text
    raise DbtRuntimeError(
        f"service is '{service}', which is no address: write http://host:port, https://host:port, host:port "
        "or embedded."
    )
