"""dbt's own tests: python model."""

from __future__ import annotations

import pytest
from dbt.tests.adapter.python_model import test_python_model as python_model
from dbt.tests.adapter.python_model import test_spark as spark


class TestPythonEmptyTests(python_model.BasePythonEmptyTests):
    pass


class TestPythonIncrementalTests(python_model.BasePythonIncrementalTests):
    pass


class TestPythonMetaGetTests(python_model.BasePythonMetaGetTests):
    pass


class TestPythonModelTests(python_model.BasePythonModelTests):
    pass


class TestPythonSampleTests(python_model.BasePythonSampleTests):
    pass


class TestPySparkTests(spark.BasePySparkTests):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        """Koalas has become a part of PySpark."""
        return {
            "pandas_df.py": spark.PANDAS_MODEL,
            "pyspark_df.py": spark.PYSPARK_MODEL,
            "pandas_on_spark_df.py": spark.PANDAS_ON_SPARK_MODEL,
            "koalas_df.py": spark.KOALAS_MODEL.replace("databricks.koalas", "pyspark.pandas"),
        }
