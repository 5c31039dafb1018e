"""dbt's own tests: utils."""

from __future__ import annotations

import pytest
from dbt.tests.adapter.utils import base_array_utils, base_utils, fixture_get_intervals_between
from dbt.tests.adapter.utils import test_any_value as any_value
from dbt.tests.adapter.utils import test_array_append as array_append
from dbt.tests.adapter.utils import test_array_concat as array_concat
from dbt.tests.adapter.utils import test_array_construct as array_construct
from dbt.tests.adapter.utils import test_bool_or as bool_or
from dbt.tests.adapter.utils import test_cast as cast
from dbt.tests.adapter.utils import test_cast_bool_to_text as cast_bool_to_text
from dbt.tests.adapter.utils import test_concat as concat
from dbt.tests.adapter.utils import test_current_timestamp as current_timestamp
from dbt.tests.adapter.utils import test_date as date
from dbt.tests.adapter.utils import test_date_spine as date_spine
from dbt.tests.adapter.utils import test_date_trunc as date_trunc
from dbt.tests.adapter.utils import test_dateadd as dateadd
from dbt.tests.adapter.utils import test_datediff as datediff
from dbt.tests.adapter.utils import test_equals as equals
from dbt.tests.adapter.utils import test_escape_single_quotes as escape_single_quotes
from dbt.tests.adapter.utils import test_except as except_rows
from dbt.tests.adapter.utils import test_generate_series as generate_series
from dbt.tests.adapter.utils import test_get_intervals_between as get_intervals_between
from dbt.tests.adapter.utils import test_get_powers_of_two as get_powers_of_two
from dbt.tests.adapter.utils import test_hash as hashing
from dbt.tests.adapter.utils import test_intersect as intersect
from dbt.tests.adapter.utils import test_last_day as last_day
from dbt.tests.adapter.utils import test_length as length
from dbt.tests.adapter.utils import test_listagg as listagg
from dbt.tests.adapter.utils import test_null_compare as null_compare
from dbt.tests.adapter.utils import test_position as position
from dbt.tests.adapter.utils import test_replace as replace
from dbt.tests.adapter.utils import test_right as right
from dbt.tests.adapter.utils import test_safe_cast as safe_cast
from dbt.tests.adapter.utils import test_source_freshness_custom_info as source_freshness_custom_info
from dbt.tests.adapter.utils import test_split_part as split_part
from dbt.tests.adapter.utils import test_string_literal as string_literal
from dbt.tests.adapter.utils import test_timestamps as timestamps
from dbt.tests.adapter.utils import test_validate_sql as validate_sql
from dbt.tests.adapter.utils.data_types import base_data_type_macro
from dbt.tests.adapter.utils.data_types import test_type_bigint as type_bigint
from dbt.tests.adapter.utils.data_types import test_type_boolean as type_boolean
from dbt.tests.adapter.utils.data_types import test_type_float as type_float
from dbt.tests.adapter.utils.data_types import test_type_int as type_int
from dbt.tests.adapter.utils.data_types import test_type_numeric as type_numeric
from dbt.tests.adapter.utils.data_types import test_type_string as type_string
from dbt.tests.adapter.utils.data_types import test_type_timestamp as type_timestamp


class TestArrayUtils(base_array_utils.BaseArrayUtils):
    pass


class TestUtils(base_utils.BaseUtils):
    pass


class TestDataTypeMacro(base_data_type_macro.BaseDataTypeMacro):
    pass


class TestTypeBigInt(type_bigint.TestTypeBigInt):
    pass


class TestTypeBoolean(type_boolean.TestTypeBoolean):
    pass


class TestTypeFloat(type_float.TestTypeFloat):
    pass


class TestTypeInt(type_int.TestTypeInt):
    @pytest.fixture(scope="class")
    def seeds(self) -> dict[str, str]:
        """Whole numbers of a seed are bigint unless it says something else."""
        types = "seeds: [{name: expected, config: {column_types: {int_col: int}}}]"
        return {"expected.csv": type_int.seeds__expected_csv, "expected.yml": types}


class TestTypeNumeric(type_numeric.TestTypeNumeric):
    pass


class TestTypeString(type_string.TestTypeString):
    pass


class TestTypeTimestamp(type_timestamp.TestTypeTimestamp):
    pass


class TestAnyValue(any_value.TestAnyValue):
    pass


class TestArrayAppend(array_append.TestArrayAppend):
    pass


class TestArrayConcat(array_concat.TestArrayConcat):
    pass


class TestArrayConstruct(array_construct.TestArrayConstruct):
    pass


class TestBoolOr(bool_or.TestBoolOr):
    pass


class TestCast(cast.TestCast):
    pass


class TestCastBoolToText(cast_bool_to_text.TestCastBoolToText):
    pass


class TestConcat(concat.TestConcat):
    pass


class TestCurrentTimestampNaive(current_timestamp.BaseCurrentTimestampNaive):
    pass


class TestCurrentTimestamp(current_timestamp.TestCurrentTimestamp):
    pass


class TestDate(date.TestDate):
    pass


class TestDateSpine(date_spine.TestDateSpine):
    pass


class TestDateTrunc(date_trunc.TestDateTrunc):
    pass


class TestDateAdd(dateadd.TestDateAdd):
    pass


class TestDateDiff(datediff.TestDateDiff):
    pass


class TestEquals(equals.TestEquals):
    pass


class TestEscapeSingleQuotesBackslash(escape_single_quotes.BaseEscapeSingleQuotesBackslash):
    pass


class TestEscapeSingleQuotes(escape_single_quotes.TestEscapeSingleQuotes):
    pass


class TestExcept(except_rows.TestExcept):
    pass


class TestGenerateSeries(generate_series.TestGenerateSeries):
    pass


class TestGetIntervalsBetween(get_intervals_between.TestGetIntervalsBetween):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        """With dates as Spark reads them."""
        model = fixture_get_intervals_between.models__test_get_intervals_between_sql
        model = model.replace("09/01/2023", "2023-09-01").replace("09/12/2023", "2023-09-12")
        return {
            "test_get_intervals_between.yml": (fixture_get_intervals_between.models__test_get_intervals_between_yml),
            "test_get_intervals_between.sql": model,
        }


class TestGetPowersOfTwo(get_powers_of_two.TestGetPowersOfTwo):
    pass


class TestHash(hashing.TestHash):
    pass


class TestIntersect(intersect.TestIntersect):
    pass


class TestLastDay(last_day.TestLastDay):
    pass


class TestLength(length.TestLength):
    pass


class TestListagg(listagg.TestListagg):
    pass


class TestMixedNullCompare(null_compare.TestMixedNullCompare):
    pass


class TestNullCompare(null_compare.TestNullCompare):
    pass


class TestPosition(position.TestPosition):
    pass


class TestReplace(replace.TestReplace):
    pass


class TestRight(right.TestRight):
    pass


class TestSafeCast(safe_cast.TestSafeCast):
    pass


class TestCalculateFreshnessMethod(source_freshness_custom_info.TestCalculateFreshnessMethod):
    pass


class TestSplitPart(split_part.TestSplitPart):
    pass


class TestStringLiteral(string_literal.TestStringLiteral):
    pass


class TestCurrentTimestamps(timestamps.TestCurrentTimestamps):
    @pytest.fixture(scope="class")
    def expected_schema(self) -> dict[str, str]:
        names = ("current_timestamp", "current_timestamp_in_utc_backcompat", "current_timestamp_backcompat")
        return dict.fromkeys(names, "timestamp")

    @pytest.fixture(scope="class")
    def expected_sql(self) -> str:
        return """
select current_timestamp() as current_timestamp,
       to_utc_timestamp(current_timestamp(), current_timezone()) as current_timestamp_in_utc_backcompat,
       current_timestamp() as current_timestamp_backcompat
"""


class TestValidateSqlMethod(validate_sql.TestValidateSqlMethod):
    pass
