"""One Spark session and one small lake for all tests of this folder."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from plan.small_lake import Lake


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("lake")
    before = Path.cwd()
    os.chdir(folder)  # the embedded metastore writes where the process stands
    jars = os.environ.get("HEADRACE_TEST_JARS", "/tmp/lab/jars/*.jar")
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("plan")
        .config("spark.driver.extraClassPath", ":".join(glob.glob(jars)))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield Lake(spark, folder)
    finally:
        os.chdir(before)
