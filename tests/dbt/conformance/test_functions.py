"""dbt's own tests: functions. Spark's words for volatility are DETERMINISTIC and NOT DETERMINISTIC."""

from __future__ import annotations

from dbt.tests.adapter.functions import test_js_udfs as js_udfs
from dbt.tests.adapter.functions import test_udafs as udafs
from dbt.tests.adapter.functions import test_udfs as udfs


class TestBasicJSAggregateUDF(js_udfs.BasicJSAggregateUDF):
    pass


class TestBasicJSUDF(js_udfs.BasicJSUDF):
    pass


class TestJSAggregateUDFVolatilityIgnored(js_udfs.JSAggregateUDFVolatilityIgnored):
    pass


class TestJSUDFDefaultArgSupport(js_udfs.JSUDFDefaultArgSupport):
    pass


class TestJSUDFDeterministicVolatility(js_udfs.JSUDFDeterministicVolatility):
    pass


class TestJSUDFMultiLineBody(js_udfs.JSUDFMultiLineBody):
    pass


class TestJSUDFNonDeterministicVolatility(js_udfs.JSUDFNonDeterministicVolatility):
    pass


class TestJSUDFStableVolatilityWarns(js_udfs.JSUDFStableVolatilityWarns):
    pass


class TestBasicSQLUDAF(udafs.BasicSQLUDAF):
    pass


class TestPythonUDAFDefaultArgSupport(udafs.PythonUDAFDefaultArgSupport):
    pass


class TestCanFindScalarFunctionRelation(udfs.CanFindScalarFunctionRelation):
    pass


class TestDeterministicUDF(udfs.DeterministicUDF):
    def check_function_volatility(self, sql: str) -> None:
        assert "deterministic" in sql
        assert "not deterministic" not in sql


class TestErrorForUnsupportedType(udfs.ErrorForUnsupportedType):
    pass


class TestNonDeterministicUDF(udfs.NonDeterministicUDF):
    def check_function_volatility(self, sql: str) -> None:
        assert "not deterministic" in sql


class TestPythonUDFDefaultArgSupport(udfs.PythonUDFDefaultArgSupport):
    pass


class TestPythonUDFEntryPointRequired(udfs.PythonUDFEntryPointRequired):
    pass


class TestPythonUDFVolatilitySupport(udfs.PythonUDFVolatilitySupport):
    pass


class TestPythonUDFWithPackagesSupported(udfs.PythonUDFWithPackagesSupported):
    pass


class TestStableUDF(udfs.StableUDF):
    def check_function_volatility(self, sql: str) -> None:
        """There is no such thing: dbt warns and leaves it out."""
        assert "deterministic" not in sql
