from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from headrace.cli.commands import up
from headrace.errors import BadSetting
from headrace.server import lifecycle
from headrace.settings import Settings, load, masked


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty current folder and no HEADRACE_* variables."""
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith("HEADRACE_")]:
        monkeypatch.delenv(variable)


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def refused(path: str | None = None, **arguments: Any) -> BadSetting:
    with pytest.raises(BadSetting) as caught:
        load(path, **arguments)
    assert caught.value.hint
    return caught.value


def test_defaults(tmp_path: Path) -> None:
    settings = load()
    lake = tmp_path / "lake"
    assert settings.path == lake
    assert settings.warehouse == lake / "warehouse"
    assert settings.database_url == f"sqlite:///{lake}/headrace.db"
    assert settings.log_file == lake / "logs" / "headrace.log"
    assert settings.jars == Path.home() / ".cache/headrace/jars"
    assert (settings.spark_master, settings.spark_settings, settings.driver_memory) == ("local[*]", {}, "4g")
    assert (settings.data_retention_days, settings.lease_seconds) == (7, 120)
    assert (settings.workspace, settings.schema_name, settings.timezone) == ("main", "public", "UTC")
    assert {line.origin for line in settings.describe()} == {"default"}


def test_everything_follows_the_path(tmp_path: Path) -> None:
    settings = load("/data/lake", warehouse="elsewhere")
    assert settings.database_url == "sqlite:////data/lake/headrace.db"
    assert settings.warehouse == tmp_path / "elsewhere"
    assert load("~/lake").path == Path.home() / "lake"


def test_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "headrace.toml", 'timezone = "Asia/Tokyo"\nlease_seconds = 5\ndriver_memory = "1g"\n')
    monkeypatch.setenv("HEADRACE_LEASE_SECONDS", "6")
    monkeypatch.setenv("HEADRACE_DRIVER_MEMORY", "2g")
    settings = load(driver_memory="3g", timezone=None)
    assert (settings.timezone, settings.lease_seconds, settings.driver_memory) == ("Asia/Tokyo", 6, "3g")
    origins = {line.name: line.origin for line in settings.describe()}
    assert origins["timezone"] == f"file {tmp_path}/headrace.toml"
    assert origins["lease_seconds"] == "variable HEADRACE_LEASE_SECONDS"
    assert origins["driver_memory"] == "argument"
    assert origins["path"] == "default"


def test_file_in_the_lake_is_read_when_there_is_none_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "far/lake/headrace.toml", 'workspace = "sales"\nwarehouse = "wh"\n')
    monkeypatch.setenv("HEADRACE_PATH", "far/lake")
    settings = load()
    assert settings.workspace == "sales"
    assert settings.warehouse == tmp_path / "far/lake/wh"
    write(tmp_path / "headrace.toml", "")
    assert load().workspace == "main"


def test_file_here_may_say_where_the_lake_is(tmp_path: Path) -> None:
    write(tmp_path / "headrace.toml", 'path = "data"\ndatabase_url = "sqlite:///ops.db"\n')
    settings = load()
    assert settings.path == tmp_path / "data"
    assert settings.database_url == f"sqlite:///{tmp_path}/ops.db"
    assert load("other").path == tmp_path / "other"


def test_file_in_the_lake_must_not_say_where_the_lake_is(tmp_path: Path) -> None:
    write(tmp_path / "lake/headrace.toml", 'path = "data"\n')
    assert f"{tmp_path}/lake/headrace.toml" in refused().message


def test_spark_settings_are_merged_and_flattened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        tmp_path / "headrace.toml",
        '[spark_settings]\nspark.sql.shuffle.partitions = 4\nspark.ui.enabled = false\n"spark.a" = "file"\n',
    )
    monkeypatch.setenv("HEADRACE_SPARK_SETTINGS", '{"spark.a": "variable", "spark.b": 1.5}')
    settings = load(spark_settings={"spark.c": "argument"})
    assert settings.spark_settings == {
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
        "spark.a": "variable",
        "spark.b": "1.5",
        "spark.c": "argument",
    }
    assert settings.origin("spark_settings.spark.a") == "variable HEADRACE_SPARK_SETTINGS"
    assert settings.origin("spark_settings.spark.ui.enabled") == f"file {tmp_path}/headrace.toml"


@pytest.mark.parametrize("name", ["schema", "schema_name"])
def test_schema_has_two_names(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(**{name: "raw"}).schema_name == "raw"
    monkeypatch.setenv(f"HEADRACE_{name.upper()}", "staging")
    assert load().schema_name == "staging"
    monkeypatch.delenv(f"HEADRACE_{name.upper()}")
    write(tmp_path / "headrace.toml", f'{name} = "gold"\n')
    assert load().schema_name == "gold"
    assert load().origin("schema") == f"file {tmp_path}/headrace.toml"


def test_schema_given_twice() -> None:
    assert "given twice" in refused(schema="a", schema_name="b").message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("data_retention_days", 0),
        ("data_retention_days", "many"),
        ("data_retention_days", True),
        ("data_retention_days", 1.5),
        ("lease_seconds", -1),
        ("workspace", "a__b"),
        ("workspace", "a b"),
        ("workspace", "_a"),
        ("workspace", "ä"),
        ("workspace", "a\n"),
        ("workspace", ""),
        ("schema", ""),
        ("timezone", "Mars/Olympus"),
        ("timezone", "../../etc/passwd"),
        ("timezone", ""),
        ("driver_memory", "lots"),
        ("driver_memory", "0g"),
        ("database_url", "mysql://x"),
        ("database_url", "sqlite://"),
        ("database_url", 7),
        ("spark_master", ""),
        ("spark_settings", "x"),
        ("spark_settings", {"spark.a": [1]}),
        ("path", 7),
        ("path", "a\0b"),
        ("jars", "~nobody-of-that-name/x"),
    ],
)
def test_bad_argument(name: str, value: Any) -> None:
    error = refused(**{name: value})
    assert f"'{name}" in error.message
    assert "(argument)" in error.message


def test_bad_variable_and_file_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "headrace.toml", 'lease_seconds = "soon"\n')
    assert f"(file {tmp_path}/headrace.toml)" in refused().message
    monkeypatch.setenv("HEADRACE_LEASE_SECONDS", "later")
    assert "(variable HEADRACE_LEASE_SECONDS)" in refused().message
    monkeypatch.setenv("HEADRACE_SPARK_SETTINGS", "spark.a=1")
    assert "(variable HEADRACE_SPARK_SETTINGS)" in refused().message


def test_unknown_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = refused(warehose="x")
    assert "'warehose' (argument)" in error.message
    assert error.hint == "Did you mean 'warehouse'?"
    assert "data_retention_days" in str(refused(zzz=1).hint)
    monkeypatch.setenv("HEADRACE_TIMEZONES", "UTC")
    assert "(variable HEADRACE_TIMEZONES)" in refused().message
    monkeypatch.delenv("HEADRACE_TIMEZONES")
    write(tmp_path / "headrace.toml", "[spark]\nx = 1\n")
    assert f"'spark' (file {tmp_path}/headrace.toml)" in refused().message


def test_variables_of_other_parts_and_empty_ones_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HEADRACE_JAVA_ONLY", "HEADRACE_FAILPOINT", "HEADRACE_TEST_X"):
        monkeypatch.setenv(variable, "1")
    monkeypatch.setenv("HEADRACE_WAREHOUSE", "")
    assert load().origin("warehouse") == "default"


@pytest.mark.parametrize("content", [b"path = ", b"path = lake", b"\xff\xfe", b"a = 1\na = 2", b"spark_settings = 1"])
def test_broken_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "headrace.toml").write_bytes(content)
    assert f"{tmp_path}/headrace.toml" in refused().message


def test_file_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").mkdir()
    assert f"{tmp_path}/headrace.toml" in refused().message


SECRET = "c4n/ary@x:y"


def test_secrets_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"postgresql://me:{SECRET}@db:5432/ops"
    settings = load(database_url=url, spark_settings={"fs.s3a.secret.key": SECRET, "spark.jdbc": url})
    assert settings.database_url == url
    shown = {line.name: line.value for line in settings.describe()}
    assert shown["database_url"] == "postgresql://me:***@db:5432/ops"
    assert shown["spark_settings.fs.s3a.secret.key"] == "***"
    assert SECRET not in f"{shown} {settings} {settings!r}"
    assert SECRET not in str(refused(database_url=f"mysql://me:{SECRET}@db/ops"))
    assert SECRET not in str(refused(database_url=url, spark_settings=[SECRET]))


def test_frozen() -> None:
    settings = load()
    with pytest.raises(ValidationError):
        settings.__setattr__("path", Path("/x"))
    assert isinstance(settings, Settings)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:////home/a:b@c/x.db", "sqlite:////home/a:b@c/x.db"),
        ("postgresql://host/db", "postgresql://host/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("postgresql://:pw@host/db", "postgresql://:***@host/db"),
        ("postgresql:///db?host=/tmp&PASSWORD=pw", "postgresql:///db?host=/tmp&PASSWORD=***"),
    ],
)
def test_masked(url: str, shown: str) -> None:
    assert masked(url) == shown


def test_a_percent_sign_in_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="%"):
        load(tmp_path / "50%20off")


def test_a_server_forgets_the_variables_of_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that it runs, and the programs that it starts, do not find them."""
    secrets = {"DATABASE_URL": "sqlite:///x.db", "SMTP_PASSWORD": "c4nary", "SPARK_SETTINGS": '{"a.key": "c4nary"}'}
    for name, value in {**secrets, "TIMEZONE": "Asia/Tokyo"}.items():
        monkeypatch.setenv(f"HEADRACE_{name}", value)
    seen: list[tuple[Settings, dict[str, str]]] = []
    monkeypatch.setattr(lifecycle, "serve", lambda settings, **_: seen.append((settings, dict(os.environ))))
    up.up(background=False)
    ((settings, environment),) = seen
    assert (settings.smtp_password, settings.spark_settings) == ("c4nary", {"a.key": "c4nary"})
    assert {name for name in environment if name.startswith("HEADRACE_")} == {"HEADRACE_TIMEZONE"}
