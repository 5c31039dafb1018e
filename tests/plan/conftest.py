"""One small lake of awkward tables for all tests of this folder, in the test process' own Spark session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace import Lake as HeadraceLake
from plan.small_lake import Lake


@pytest.fixture(scope="module")
def lake(shared_lake: HeadraceLake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    try:
        yield Lake(shared_lake.spark, tmp_path_factory.mktemp("plan"))
    finally:
        shared_lake.sql("USE public")
