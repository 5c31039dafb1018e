"""COPY INTO as a statement."""

from __future__ import annotations

import pytest

from headrace.errors import SyntaxFault
from headrace.sql.copying import parse_copy
from headrace.sql.cursor import Cursor
from headrace.sql.statements import CopyInto


def parsed(text: str) -> CopyInto:
    return parse_copy(Cursor(text))


def test_all_clauses() -> None:
    text = (
        "copy into main.raw.`my table` from 'in/*.csv' file_format = csv options ('header' = 'true', 'sep' = '|') "
        "force = true"
    )
    found = parsed(text)
    assert found == CopyInto(text, ("main", "raw", "my table"), "in/*.csv", "CSV", {"header": "true", "sep": "|"}, True)
    assert parsed("COPY INTO TABLE t FROM 'x' FORCE = FALSE FILE_FORMAT 'json'").file_format == "JSON"
    assert parsed("COPY INTO t FROM 'x' FILE_FORMAT = PARQUET").options == {}


def test_the_format_may_be_left_to_the_names() -> None:
    text = "COPY INTO t FROM 'in/*.csv'"
    assert parsed(text) == CopyInto(text, ("t",), "in/*.csv", None, {}, False)
    assert parsed("COPY INTO t FROM 'x' OPTIONS ('header' = 'true') FORCE = TRUE").file_format is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("COPY INTO t", "FROM"),
        ("COPY INTO t FROM x", "the files in quotes"),
        ("COPY INTO t FROM 'x' FORMAT = CSV", "FILE_FORMAT, OPTIONS, FORCE or the end"),
        ("COPY INTO t FROM 'x' FILE_FORMAT = ORC", "CSV, JSON or PARQUET"),
        ("COPY INTO t FROM 'x' FILE_FORMAT = CSV FORCE = 1", "TRUE or FALSE"),
        ("COPY INTO t FROM 'x' FILE_FORMAT = CSV PATTERN = 'y'", "FILE_FORMAT, OPTIONS, FORCE or the end"),
        ("COPY INTO t FROM 'x' FILE_FORMAT = CSV OPTIONS (header = yes)", "a property value"),
        ("COPY INTO 'path' FROM t", "a table name"),
    ],
)
def test_faults_say_what_was_expected(text: str, expected: str) -> None:
    with pytest.raises(SyntaxFault) as raised:
        parsed(text)
    assert expected in raised.value.message
    assert raised.value.position is not None
    assert "COPY INTO name FROM 'files'" in (raised.value.hint or "")


def test_a_clause_is_given_once() -> None:
    with pytest.raises(SyntaxFault, match="FORCE is given twice"):
        parsed("COPY INTO t FROM 'x' FILE_FORMAT = CSV FORCE = TRUE FORCE = TRUE")
