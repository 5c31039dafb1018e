"""Spark's settings for a lake, without starting it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from headrace.settings import Settings
from headrace.storage.spark import spark_configuration

JARS = [Path("/jars/a.jar"), Path("/jars/b.jar")]


def configuration(tmp_path: Path, **settings: object) -> dict[str, str]:
    return spark_configuration(Settings.model_validate({"path": tmp_path, **settings}), JARS)


def test_a_local_lake_is_small_loopback_and_its_own(tmp_path: Path) -> None:
    found = configuration(tmp_path, spark_master="local[3]")
    assert found["spark.driver.extraClassPath"] == "/jars/a.jar:/jars/b.jar"
    assert found["spark.sql.shuffle.partitions"] == "48"
    assert found["spark.sql.files.maxPartitionBytes"] == str(8 * 1024**2), "tasks are short: docs/adr/0021"
    assert found["spark.driver.bindAddress"] == "127.0.0.1"
    assert found["spark.sql.warehouse.dir"] == f"file://{tmp_path}/warehouse"
    assert found["spark.hadoop.javax.jdo.option.ConnectionURL"].endswith("databaseName=metastore;create=true")
    assert "spark.jars" not in found


def test_a_cluster_gets_the_jars_and_its_own_network(tmp_path: Path) -> None:
    found = configuration(tmp_path, spark_master="spark://host:7077")
    assert found["spark.jars"] == "/jars/a.jar,/jars/b.jar"
    local = {"spark.driver.extraClassPath", "spark.driver.host", "spark.sql.shuffle.partitions"}
    assert not (local | {"spark.sql.files.maxPartitionBytes"}) & found.keys()


def test_retention_becomes_the_tables_default(tmp_path: Path) -> None:
    found = configuration(tmp_path, data_retention_days=30)
    defaults = "spark.databricks.delta.properties.defaults."
    assert found[f"{defaults}deletedFileRetentionDuration"] == "interval 30 days"
    assert found[f"{defaults}logRetentionDuration"] == "interval 30 days"


def test_the_users_settings_win_and_their_lists_are_added(tmp_path: Path) -> None:
    mine = {
        "spark.ui.enabled": "true",
        "spark.driver.extraJavaOptions": "-Dmine=1",
        "spark.driver.extraClassPath": "/mine.jar",
    }
    found = configuration(tmp_path, spark_settings=mine)
    assert found["spark.ui.enabled"] == "true"
    assert found["spark.driver.extraJavaOptions"].endswith(" -Dmine=1")
    assert f"-Dheadrace.lake={tmp_path}" in found["spark.driver.extraJavaOptions"]
    assert found["spark.driver.extraClassPath"] == "/jars/a.jar:/jars/b.jar:/mine.jar"


@pytest.mark.parametrize(
    "key",
    [
        "spark.hadoop.hive.metastore.uris",
        "spark.hadoop.javax.jdo.option.ConnectionURL",
        "spark.sql.catalogImplementation",
    ],
)
def test_a_metastore_of_the_users_replaces_the_embedded_one(tmp_path: Path, key: str) -> None:
    found = configuration(tmp_path, spark_settings={key: "mine"})
    assert found[key] == "mine"
    assert "spark.hadoop.datanucleus.schema.autoCreateAll" not in found


def test_a_path_with_spaces_stays_one_option(tmp_path: Path) -> None:
    found = configuration(tmp_path / "my lake")
    assert f"-Dheadrace.lake={tmp_path}/my lake" in shlex.split(found["spark.driver.extraJavaOptions"])
