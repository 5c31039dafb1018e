"""What a recorded DataFrame may call: the one list that both sides read.

The client records nothing else, and the server replays nothing else: a name that is not here has no meaning in a plan.
PySpark's names stand here as data, because the client does not load PySpark; a test compares them with PySpark's own,
so that a name which a new version adds is either allowed or refused, with the reason, before that version is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Kind = Literal["frame", "groups", "column", "window", "lambda"]
"""What a node of a plan is when it is replayed."""


def _giving(kind: Kind, names: str) -> dict[str, Kind]:
    return dict.fromkeys(names.split(), kind)


def _because(reason: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), reason)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


FRAME_METHODS: Mapping[str, Kind] = {
    **_giving(
        "frame",
        """
        agg alias coalesce crossJoin crosstab describe distinct drop dropDuplicates dropDuplicatesWithinWatermark
        drop_duplicates dropna exceptAll fillna filter freqItems hint intersect intersectAll join lateralJoin limit melt
        nearestByJoin offset orderBy repartition repartitionById repartitionByRange replace sample sampleBy select
        selectExpr sort sortWithinPartitions subtract summary to toDF transpose union unionAll unionByName unpivot where
        withColumn withColumnRenamed withColumns withColumnsRenamed withMetadata withWatermark zipWithIndex
        """,
    ),
    **_giving("groups", "cube groupBy groupby groupingSets rollup"),
    **_giving("column", "colRegex exists metadataColumn scalar"),
}
"""Methods of a DataFrame that compute nothing, with what they give."""

EAGER_METHODS = frozenset({"crosstab", "freqItems", "pivot", "transpose", "describe", "summary", "sampleBy"})
"""Those that may read rows as soon as they are called: the server looks at the user's rights before it calls them."""

FRAME_BY_HAND = _names(
    """
    cache collect columns createOrReplaceTempView createTempView dtypes explain first head isStreaming na persist
    printSchema randomSplit registerTempTable schema show stat tail take toArrow toLocalIterator toPandas transform
    unpersist write count isEmpty approxQuantile corr cov
    """
)
"""Written out in `recording.frames`: actions, and what is the same on this side."""

_PROGRAMS = "it runs a function of this program, and the server runs none"
_INSIDE = "it is a matter between Spark and the process that holds it"
_SHARED = "temporary views of all sessions are not allowed: make a view, or a temporary view of this session"

FRAME_REFUSED: Mapping[str, str] = {
    **_because(_PROGRAMS, "foreach foreachPartition mapInArrow mapInPandas pandas_api plot rdd"),
    **_because(_INSIDE, "asTable executionInfo inputFiles isLocal observe sameSemantics semanticHash"),
    **_because(_INSIDE, "sparkSession storageLevel writeStream"),
    **_because(_SHARED, "createGlobalTempView createOrReplaceGlobalTempView"),
    **_because("cache_result() keeps the rows of a DataFrame", "checkpoint localCheckpoint"),
    "mergeInto": "write MERGE INTO with session.sql",
    "writeTo": "write.save_as_table and write.insert_into write tables",
    "toJSON": "select(F.to_json(F.struct('*'))) gives the same",
}
"""Methods of PySpark's DataFrame that do not travel, with the reason."""

GROUPS_METHODS: Mapping[str, Kind] = {
    **_giving("frame", "agg avg count max mean min sum"),
    **_giving("groups", "pivot"),
}
GROUPS_REFUSED: Mapping[str, str] = _because(
    _PROGRAMS,
    """
    apply applyInArrow applyInPandas applyInPandasWithState cogroup transformWithState transformWithStateInPandas
    """,
)

OPERATORS = frozenset(
    {"+", "-", "*", "/", "%", "**", "==", "!=", "<", "<=", ">", ">=", "&", "|", "~", "negative", "[]"}
)
"""Python's operators on a Column; `[]` takes an item or field."""
COLUMN_METHODS: Mapping[str, Kind] = {
    **dict.fromkeys(OPERATORS, "column"),
    **_giving(
        "column",
        """
        alias asc asc_nulls_first asc_nulls_last astype between bitwiseAND bitwiseOR bitwiseXOR cast contains desc
        desc_nulls_first desc_nulls_last dropFields endswith eqNullSafe getField getItem ilike isNaN isNotNull isNull
        isin like name otherwise outer over rlike startswith substr try_cast when withField
        """,
    ),
}
COLUMN_BY_HAND = frozenset({"transform"})

WINDOW_METHODS: Mapping[str, Kind] = _giving("window", "orderBy partitionBy rangeBetween rowsBetween")

METHODS: Mapping[Kind, Mapping[str, Kind]] = {
    "frame": FRAME_METHODS,
    "groups": GROUPS_METHODS,
    "column": COLUMN_METHODS,
    "window": WINDOW_METHODS,
    "lambda": {},
}

FUNCTIONS = _names(
    """
    abs acos acosh add_months aes_decrypt aes_encrypt aggregate any_value approxCountDistinct approx_count_distinct
    approx_percentile array array_agg array_append array_compact array_contains array_distinct array_except
    array_insert array_intersect array_join array_max array_min array_position array_prepend array_remove
    array_repeat array_size array_sort array_union arrays_overlap arrays_zip asc asc_nulls_first asc_nulls_last
    ascii asin asinh assert_true atan atan2 atanh avg base64 bin bit_and bit_count bit_get bit_length bit_or bit_xor
    bitmap_and_agg bitmap_bit_position bitmap_bucket_number bitmap_construct_agg bitmap_count bitmap_or_agg
    bitwiseNOT bitwise_not bool_and bool_or bround btrim cardinality cbrt ceil ceiling char char_length
    character_length chr coalesce col collate collation collect_list collect_set column concat concat_ws contains
    conv convert_timezone corr cos cosh cot count countDistinct count_distinct count_if count_min_sketch covar_pop
    covar_samp crc32 create_map csc cume_dist curdate current_catalog current_database current_date current_path
    current_schema current_time current_timestamp current_timezone current_user date_add date_diff date_format
    date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek
    dayofyear decode degrees dense_rank desc desc_nulls_first desc_nulls_last e element_at elt encode endswith
    equal_null every exists exp explode explode_outer expm1 expr extract factorial filter find_in_set first
    first_value flatten floor forall format_number format_string from_csv from_json from_unixtime from_utc_timestamp
    get get_json_object getbit greatest grouping grouping_id hash hex histogram_numeric hll_sketch_agg
    hll_sketch_estimate hll_union hll_union_agg hour hypot ifnull ilike initcap inline inline_outer
    input_file_block_length input_file_block_start input_file_name instr is_valid_utf8 is_valid_variant
    is_variant_null isnan isnotnull isnull json_array_length json_object_keys json_tuple kll_merge_agg_bigint
    kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float
    kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float kll_sketch_get_quantile_bigint
    kll_sketch_get_quantile_double kll_sketch_get_quantile_float kll_sketch_get_rank_bigint
    kll_sketch_get_rank_double kll_sketch_get_rank_float kll_sketch_merge_bigint kll_sketch_merge_double
    kll_sketch_merge_float kll_sketch_to_string_bigint kll_sketch_to_string_double kll_sketch_to_string_float
    kurtosis lag last last_day last_value lcase lead least left length levenshtein like listagg listagg_distinct lit
    ln localtimestamp locate log log10 log1p log2 lower lpad ltrim make_date make_dt_interval make_interval
    make_time make_timestamp make_timestamp_ltz make_timestamp_ntz make_valid_utf8 make_ym_interval map_concat
    map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys map_values map_zip_with mask
    max max_by md5 mean median min min_by minute mode monotonically_increasing_id month monthname months_between
    named_struct nanvl negate negative next_day now nth_value ntile nullif nullifzero nvl nvl2 octet_length overlay
    parse_json parse_url percent_rank percentile percentile_approx pi pmod posexplode posexplode_outer position
    positive pow power printf product quarter quote radians raise_error rand randn random randstr rank reduce regexp
    regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr regr_avgx
    regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy repeat replace reverse right
    rint rlike round row_number rpad rtrim schema_of_csv schema_of_json schema_of_variant schema_of_variant_agg
    sec second sentences sequence session_user session_window sha sha1 sha2 shiftLeft shiftRight
    shiftRightUnsigned shiftleft shiftright shiftrightunsigned shuffle sign signum sin sinh size skewness slice some
    sort_array soundex spark_partition_id split split_part sqrt st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid
    st_srid stack startswith std stddev stddev_pop stddev_samp str_to_map string_agg string_agg_distinct struct
    substr substring substring_index sum sumDistinct sum_distinct tan tanh theta_difference theta_intersection
    theta_intersection_agg theta_sketch_agg theta_sketch_estimate theta_union theta_union_agg time_bucket time_diff
    time_from_micros time_from_millis time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc
    timestamp_add timestamp_diff timestamp_micros timestamp_millis timestamp_seconds toDegrees toRadians to_binary
    to_char to_csv to_date to_json to_number to_time to_timestamp to_timestamp_ltz to_timestamp_ntz
    to_unix_timestamp to_utc_timestamp to_varchar to_variant_object to_xml transform transform_keys transform_values
    translate trim trunc try_add try_aes_decrypt try_avg try_divide try_element_at try_make_interval
    try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply try_parse_json
    try_parse_url try_subtract try_sum try_to_binary try_to_date try_to_number try_to_time try_to_timestamp
    try_url_decode try_validate_utf8 try_variant_get tuple_difference_double tuple_difference_integer
    tuple_difference_theta_double tuple_difference_theta_integer tuple_intersection_agg_double
    tuple_intersection_agg_integer tuple_intersection_double tuple_intersection_integer
    tuple_intersection_theta_double tuple_intersection_theta_integer tuple_sketch_agg_double
    tuple_sketch_agg_integer tuple_sketch_estimate_double tuple_sketch_estimate_integer tuple_sketch_summary_double
    tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer tuple_union_agg_double
    tuple_union_agg_integer tuple_union_double tuple_union_integer tuple_union_theta_double
    tuple_union_theta_integer typeof ucase unbase64 unhex uniform unix_date unix_micros unix_millis unix_seconds
    unix_timestamp upper url_decode url_encode user uuid validate_utf8 var_pop var_samp variance variant_get version
    weekday weekofyear when width_bucket window window_time xpath xpath_boolean xpath_double xpath_float xpath_int
    xpath_long xpath_number xpath_short xpath_string xxhash64 year zeroifnull zip_with
    """
)
"""Functions of `pyspark.sql.functions`."""

_JAVA = "it runs Java code in the process that holds the lake"
_PARTITIONS = "it belongs to writeTo"

FUNCTIONS_REFUSED: Mapping[str, str] = {
    **_because(_PROGRAMS, "arrow_udf arrow_udtf pandas_udf udf udtf unwrap_udt"),
    **_because(_JAVA, "java_method reflect try_reflect"),
    **_because("its options name files of the server", "from_xml schema_of_xml"),
    **_because("F.expr('name(…)') calls a function by its name", "call_function call_udf"),
    **_because(_PARTITIONS, "bucket days hours months years"),
}
FUNCTIONS_BY_HAND = frozenset({"broadcast"})
"""`broadcast(df)` is `df.hint("broadcast")`."""

WRITER_SETTINGS = frozenset({"bucketBy", "clusterBy", "format", "mode", "option", "options", "partitionBy", "sortBy"})
WRITER_ENDS = frozenset({"save_as_table", "insert_into"})
WRITER_OPTIONS = _names(
    "maxrecordsperfile mergeschema optimizewrite overwriteschema partitionoverwritemode replacewhere"
)
"""In lower case. None of them names a place (a table is where the catalog says), or hides a commit from streams."""
WRITER_REFUSED: Mapping[str, str] = _because(
    "a server writes tables, not files: write.save_as_table", "csv jdbc json orc parquet save text xml"
)


def spelled(names: Mapping[str, object] | frozenset[str], name: str) -> str | None:
    """The listed name that is meant, written as it is or without regard to underscores and case.

    >>> spelled(FRAME_METHODS, "with_column")
    'withColumn'
    """
    if name in names:
        return name
    if name.startswith("_"):
        return None
    plain = name.replace("_", "").lower()
    return next((known for known in sorted(names) if known.replace("_", "").lower() == plain), None)
