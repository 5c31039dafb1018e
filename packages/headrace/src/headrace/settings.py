"""Settings of a lake: from arguments, then HEADRACE_* variables, then headrace.toml, then defaults.

Every value's origin is kept, because "where does this come from?" is the first question about a wrong one. That is
also why the three places are read here and not by pydantic-settings, which does not tell them apart afterwards and
ignores its own prefix for a name with an alias (`schema`).
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError, field_validator

from headrace.errors import BadSetting
from headrace.optimisations import OPTIMISATIONS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

FILE_NAME = "headrace.toml"
PREFIX = "HEADRACE_"
FOREIGN_PREFIXES = (
    "HEADRACE_JAVA_", "HEADRACE_FAILPOINT", "HEADRACE_TEST_", "HEADRACE_BENCH_",
    "HEADRACE_TASK", "HEADRACE_SCHEDULED_TIME",
)  # fmt: skip
"""Variables with these beginnings belong to other parts of the program and are no settings."""

_DEFAULT_LAKE = Path("lake")
_PATHS = frozenset({"path", "warehouse", "jars", "log_file", "tls_certificate", "tls_key", "ca_file"})
_ALIASES = {"schema": "schema_name"}
_PUBLIC = {field: alias for alias, field in _ALIASES.items()}
_WORKSPACE = re.compile(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)*")
_HOST_PATTERN = re.compile(r"(\*\.)?[A-Za-z0-9_:-]+(\.[A-Za-z0-9_-]+)*")
_MEMORY = re.compile(r"[1-9][0-9]*[kmgtKMGT]")
_DATABASE = re.compile(r"sqlite:///.+|postgresql(\+psycopg)?://.*", re.DOTALL)
_RELATIVE_SQLITE = re.compile(r"sqlite:///(?!/)(?P<path>.+)", re.DOTALL)
_SECRET = re.compile(r"password|secret|token|credential|access[._]?key|account[._]?key", re.IGNORECASE)
_MASK = "***"


def masked(url: str) -> str:
    """The text with any password of a URL in it replaced.

    >>> masked("postgresql://me:s3cret@host/ops?sslpassword=x&sslmode=require")
    'postgresql://me:***@host/ops?sslpassword=***&sslmode=require'
    """
    # Up to the last @, because a password may hold an @ or a / that should have been escaped.
    without_user = re.sub(r"(://[^:/@]*):.*@", rf"\1:{_MASK}@", url, flags=re.DOTALL)
    return re.sub(r"([?&\s](?:ssl)?password=)[^&\s]*", rf"\1{_MASK}", without_user, flags=re.IGNORECASE)


def _whole_number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a whole number")
    return value


_Count = Annotated[int, BeforeValidator(_whole_number), Field(ge=1)]


def _texts(value: Any) -> Any:
    """Spark's settings as texts. `spark.sql.x = 4` without quotes is a nested table to TOML: join it again."""
    if not isinstance(value, Mapping):
        return value
    return dict(_flat(value, ""))


def _flat(table: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        elif isinstance(value, bool):
            yield name, str(value).lower()
        elif isinstance(value, (str, int, float)):
            yield name, str(value)
        else:
            raise ValueError(f"'{name}' must be a text, a number or a boolean")


def _words(value: Any) -> Any:
    """A list of words, also as one text with commas."""
    return tuple(word.strip() for word in value.split(",") if word.strip()) if isinstance(value, str) else value


def _lake(known: dict[str, Any]) -> Path:
    """The lake's folder, for the defaults inside it. It is not known when it was refused: pydantic before 2.11 asks
    for the other defaults all the same, and then reports the refusal."""
    return Path(known.get("path", _DEFAULT_LAKE))


@dataclass(frozen=True)
class Setting:
    """One line of `headrace doctor`; a secret's value is masked."""

    name: str
    value: str
    origin: str


class Settings(BaseModel):
    """Made by `load`. Built directly, it holds the arguments and defaults only."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)

    path: Path = Field(default=_DEFAULT_LAKE, validate_default=True)
    warehouse: Path = Field(default_factory=lambda known: _lake(known) / "warehouse")
    database_url: str = Field(default_factory=lambda known: f"sqlite:///{_lake(known) / 'headrace.db'}", repr=False)
    spark_master: str = Field(default="local[*]", min_length=1)
    spark_settings: Annotated[dict[str, str], BeforeValidator(_texts)] = Field(default_factory=dict, repr=False)
    data_retention_days: _Count = 7
    workspace: str = "main"
    schema_name: str = Field(default="public", min_length=1, max_length=255, alias="schema")
    timezone: str = "UTC"
    jars: Path = Field(default=Path("~/.cache/headrace/jars"), validate_default=True)
    driver_memory: str = "4g"
    log_file: Path = Field(default_factory=lambda known: _lake(known) / "logs" / "headrace.log")
    lease_seconds: _Count = 120
    optimisations_off: Annotated[tuple[str, ...], BeforeValidator(_words)] = ()
    host: str = Field(default="127.0.0.1", min_length=1)
    port: Annotated[int, BeforeValidator(_whole_number), Field(ge=0, le=65535)] = 8910
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    allow_insecure: bool = False
    server_hosts: Annotated[tuple[str, ...], BeforeValidator(_words)] = ()
    trusted_proxies: Annotated[tuple[str, ...], BeforeValidator(_words)] = ()
    session_idle_seconds: _Count = 3600
    result_rows_max: _Count = 1_000_000
    result_bytes_max: _Count = 512 * 1024**2
    result_bytes_kept: _Count = 2 * 1024**3
    audit_days: Annotated[int, BeforeValidator(_whole_number), Field(ge=1, le=36_500)] = 365
    allow_unsafe_sql: bool = False
    scheduler: bool = True
    copy_folders: Annotated[tuple[Path, ...], BeforeValidator(_words)] = ()
    code_tasks: bool = False
    smtp_host: str | None = Field(default=None, min_length=1)
    smtp_port: Annotated[int, BeforeValidator(_whole_number), Field(ge=1, le=65535)] = 587
    smtp_from: str | None = None
    smtp_username: str | None = None
    smtp_password: str | None = Field(default=None, repr=False)
    smtp_tls: Literal["auto", "starttls", "tls", "off"] = "auto"
    alert_hosts: Annotated[tuple[str, ...], BeforeValidator(_words)] = ()
    alert_private_hosts: bool = False
    service: str = "embedded"
    username: str | None = None
    password: str | None = Field(default=None, repr=False)
    token: str | None = Field(default=None, repr=False)
    ca_file: Path | None = None

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    @field_validator("path", "warehouse", "jars", "log_file", "tls_certificate", "tls_key", "ca_file")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        if value is None:
            return None
        if "\0" in str(value):
            raise ValueError("a path cannot hold a NUL character")
        if "%" in str(value):
            # Spark, Delta and delta-rs each read it as an escape in a different place.
            raise ValueError("a path cannot hold a % character")
        try:
            return Path(os.path.abspath(value.expanduser()))
        except RuntimeError as error:  # ~someone, who is no user here.
            raise ValueError(f"'{value}' is not a usable path: {error}") from None

    @field_validator("path", "warehouse")
    @classmethod
    def _without_patterns(cls, value: Path | None) -> Path | None:
        # Spark reads file names with these as patterns, and delta-rs ends over them.
        odd = next((letter for letter in "[]{}*?\\" if letter in str(value or "")), None)
        if odd is not None:
            raise ValueError(f"the path of a lake cannot hold a {odd} character")
        return value

    @field_validator("copy_folders")
    @classmethod
    def _absolute_folders(cls, value: tuple[Path, ...]) -> tuple[Path, ...]:
        odd = next((folder for folder in value if not folder.is_absolute() or "\0" in str(folder)), None)
        if odd is not None:
            raise ValueError(f"'{odd}' is no absolute path")
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            try:
                ipaddress.ip_network(each)
            except ValueError:
                raise ValueError(f"'{each}' is no address; write one as 10.0.0.5 or 10.0.0.0/24") from None
        return value

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, value: str) -> str:
        if not _DATABASE.fullmatch(value):
            raise ValueError("must begin with sqlite:///path or postgresql://")
        return value

    @field_validator("workspace")
    @classmethod
    def _plain_workspace(cls, value: str) -> str:
        if len(value) > 100 or not _WORKSPACE.fullmatch(value):
            raise ValueError("must be letters and digits, with single underscores between them, at most 100")
        return value

    @field_validator("timezone")
    @classmethod
    def _known_timezone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError):
            raise ValueError(f"'{value}' is no time zone; write one as Asia/Tokyo or UTC") from None
        return value

    @field_validator("driver_memory")
    @classmethod
    def _amount_of_memory(cls, value: str) -> str:
        if not _MEMORY.fullmatch(value):
            raise ValueError(f"'{value}' is no amount of memory; write one as 4g or 800m")
        return value

    @field_validator("optimisations_off")
    @classmethod
    def _known_optimisations(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = next((name for name in value if name not in OPTIMISATIONS), None)
        if unknown is not None:
            raise ValueError(f"'{unknown}' is none of {', '.join(OPTIMISATIONS)}")
        return value

    @field_validator("smtp_host")
    @classmethod
    def _plain_host(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Za-z0-9._:-]+", value):
            raise ValueError("must be the name or address of a mail server")
        return value

    @field_validator("smtp_from")
    @classmethod
    def _plain_mailbox(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[^\s@<>,;]+@[^\s@<>,;]+", value):
            raise ValueError("must be a mail address such as headrace@example.com")
        return value

    @field_validator("alert_hosts")
    @classmethod
    def _plain_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        odd = next((host for host in value if not _HOST_PATTERN.fullmatch(host)), None)
        if odd is not None:
            raise ValueError(f"'{odd}' is no host; write one as hooks.example.com or *.example.com")
        return value

    @field_validator("service")
    @classmethod
    def _known_service(cls, value: str) -> str:
        if value != "embedded" and not re.fullmatch(r"https?://[^/@\s]+/?", value):
            raise ValueError("must be embedded, or a server's address such as http://127.0.0.1:8910")
        return value.rstrip("/")

    def origin(self, name: str) -> str:
        """Where a setting (or one Spark setting, as `spark_settings.spark.x`) comes from."""
        return self._origins.get(name, "default")

    def describe(self) -> tuple[Setting, ...]:
        """Every setting with its value and origin, safe to print."""
        lines: list[Setting] = []
        for field in type(self).model_fields:
            name = _PUBLIC.get(field, field)
            if field == "spark_settings":
                for key, value in sorted(self.spark_settings.items()):
                    shown = _MASK if _SECRET.search(key) else masked(value)
                    lines.append(Setting(f"{name}.{key}", shown, self.origin(f"{name}.{key}")))
            else:
                value = getattr(self, field)
                secret = value is not None and _SECRET.search(name)
                lines.append(Setting(name, _MASK if secret else masked(str(value)), self.origin(name)))
        return tuple(lines)


@dataclass(frozen=True)
class _Layer:
    """The values that one place gives, under the public names, with what to call each one's origin."""

    values: Mapping[str, Any]
    kind: str

    def origin(self, name: str) -> str:
        return f"variable {PREFIX}{name.upper()}" if self.kind == "variable" else self.kind


def load(path: str | Path | None = None, **arguments: Any) -> Settings:
    """The settings for the lake at `path`; an argument that is None counts as not given."""
    given = _Layer(_known({"path": path, **arguments}, "argument"), "argument")
    variables = _variables(os.environ)
    here = Path.cwd() / FILE_NAME
    file = _file(here)
    if file is None:
        lake = given.values.get("path", variables.values.get("path", _DEFAULT_LAKE))
        beside = _lake_folder(lake, given if "path" in given.values else variables) / FILE_NAME
        file = _file(beside)
        if file is not None and "path" in file.values:
            raise BadSetting(
                f"The setting 'path' stands in {beside}, which is in the lake itself.",
                hint=f"Remove 'path' there, or move {FILE_NAME} to the folder you start headrace in.",
            )
    return _merge(tuple(layer for layer in (file, variables, given) if layer is not None))


def forget_secrets(environment: MutableMapping[str, str]) -> None:
    """Take the variables of secret settings away, once they are read: code that runs in this process, and the programs
    that it starts, need not find them there."""
    for name, field in Settings.model_fields.items():
        if not field.repr:
            environment.pop(f"{PREFIX}{_PUBLIC.get(name, name).upper()}", None)


def _lake_folder(lake: Any, layer: _Layer) -> Path:
    try:
        return Settings(path=lake).path
    except ValidationError as error:
        raise _bad_value(error, {"path": layer.origin("path")}) from None


def _known(values: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The values under their public names; a name that is no setting is refused."""
    names = {_PUBLIC.get(field, field) for field in Settings.model_fields}
    known: dict[str, Any] = {}
    for key, value in values.items():
        name = _PUBLIC.get(key, key)
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"Did you mean '{close[0]}'?" if close else f"The settings are {', '.join(sorted(names))}."
            called = f"{PREFIX}{key.upper()}" if kind == "variable" else key
            raise BadSetting(f"There is no setting '{key}' ({_place(kind, called)}).", hint=hint)
        if name in known and value is not None:
            raise BadSetting(
                f"'{name}' and '{_ALIASES[name]}' are one setting, given twice ({kind}).", hint="Keep one."
            )
        if value is not None:
            known[name] = value
    return known


def _place(kind: str, called: str) -> str:
    return f"variable {called}" if kind == "variable" else kind


def _variables(environment: Mapping[str, str]) -> _Layer:
    found: dict[str, Any] = {}
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or variable.startswith(FOREIGN_PREFIXES) or not text:
            continue  # An empty variable is how compose files and CI systems write "not set".
        key = variable.removeprefix(PREFIX).lower()
        found[key] = _spark_settings(variable, text) if key == "spark_settings" else text
    return _Layer(_known(found, "variable"), "variable")


def _spark_settings(variable: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise BadSetting(
            f"The setting 'spark_settings' is not a JSON object (variable {variable}).",
            hint='Write it as {"spark.sql.shuffle.partitions": "4"}.',
        )
    return value


def _file(file: Path) -> _Layer | None:
    """The settings in a file, or None when there is no such file. Relative paths count from the file's folder."""
    try:
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(
            f"The file {file} cannot be read: {error}.", hint="Make it a readable UTF-8 text file."
        ) from None
    kind = f"file {file}"
    try:
        values = _known(tomllib.loads(text), kind)
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(
            f"The file {file} is not valid TOML: {error}.",
            hint='Texts need quotes: warehouse = "/data/lake". A Spark setting whose name begins with another one\'s '
            'needs them around its name too: "spark.a.b" = "1".',
        ) from None
    for name in _PATHS & values.keys():
        if isinstance(values[name], str) and not values[name].startswith("~"):
            values[name] = str(file.parent / values[name])
    url = values.get("database_url")
    if isinstance(url, str) and (relative := _RELATIVE_SQLITE.fullmatch(url)):
        values["database_url"] = f"sqlite:///{file.parent / relative['path']}"
    return _Layer(values, kind)


def _merge(layers: tuple[_Layer, ...]) -> Settings:
    """Later layers win; Spark settings are merged one by one."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    spark: dict[str, str] = {}
    for layer in layers:
        for name, value in layer.values.items():
            origins[name] = layer.origin(name)
            if name == "spark_settings":
                for key, text in _spark_layer(value, origins[name]).items():
                    spark[key] = text
                    origins[f"{name}.{key}"] = origins[name]
            else:
                values[name] = value
    try:
        settings = Settings(**values, spark_settings=spark)
    except ValidationError as error:
        raise _bad_value(error, origins) from None
    settings._origins.update(origins)
    return settings


def _spark_layer(value: Any, origin: str) -> dict[str, str]:
    try:
        return Settings(spark_settings=value).spark_settings
    except ValidationError as error:
        raise _bad_value(error, {"spark_settings": origin}) from None


def _bad_value(error: ValidationError, origins: Mapping[str, str]) -> BadSetting:
    """The first real fault. Defaults that could not be computed because of it are only its consequence."""
    faults = [fault for fault in error.errors(include_input=False) if fault["type"] != "default_factory_not_called"]
    place = tuple(str(part) for part in faults[0]["loc"])
    name = _PUBLIC.get(place[0], place[0])
    reason = faults[0]["msg"].removeprefix("Value error, ")
    origin = origins.get(name, "default")
    return BadSetting(
        f"The setting '{'.'.join((name, *place[1:]))}' cannot be used: {reason} ({origin}).",
        hint="Correct it there; `headrace doctor` shows every setting with its origin.",
    )
