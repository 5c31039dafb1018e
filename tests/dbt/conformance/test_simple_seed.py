"""dbt's own tests: simple seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dbt.tests.adapter.simple_seed import fixtures
from dbt.tests.adapter.simple_seed import test_seed as seed
from dbt.tests.adapter.simple_seed import test_seed_type_override as seed_type_override


class StaysThere:
    """A seed is replaced in its place: views over it stay, where Postgres drops them with the old table."""

    def _check_relation_end_state(self, run_result: Any, project: Any, exists: bool) -> None:
        super()._check_relation_end_state(run_result, project, exists=True)  # type: ignore[misc]


class TestBasicSeedTests(StaysThere, seed.TestBasicSeedTests):
    pass


class TestEmptySeed(seed.TestEmptySeed):
    pass


class TestSeedConfigFullRefreshOff(seed.TestSeedConfigFullRefreshOff):
    pass


class TestSeedConfigFullRefreshOn(StaysThere, seed.TestSeedConfigFullRefreshOn):
    pass


class TestSeedCustomSchema(seed.TestSeedCustomSchema):
    pass


class TestSeedParsing(seed.TestSeedParsing):
    pass


class TestSeedSpecificFormats(seed.TestSeedSpecificFormats):
    @pytest.fixture(scope="class")
    def test_data_dir(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """The suite makes it and removes it."""
        return tmp_path_factory.mktemp("data") / "new"


class TestSeedWithEmptyDelimiter(seed.TestSeedWithEmptyDelimiter):
    pass


class TestSeedWithUniqueDelimiter(seed.TestSeedWithUniqueDelimiter):
    pass


class TestSeedWithWrongDelimiter(seed.TestSeedWithWrongDelimiter):
    pass


class TestSimpleSeedEnabledViaConfig(seed.TestSimpleSeedEnabledViaConfig):
    pass


class TestSimpleSeedWithBOM(seed.TestSimpleSeedWithBOM):
    @pytest.fixture(scope="class", autouse=True)
    def setUp(self, project: Any) -> None:
        """As the suite's own, with the file where it is."""
        project.run_sql(seed.seeds.seeds__expected_sql)
        file = Path(seed.__file__).parent / "seed_bom.csv"
        (Path(project.project_root) / "seeds" / file.name).write_bytes(file.read_bytes())


class TestSimpleSeedColumnOverride(seed_type_override.TestSimpleSeedColumnOverride):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        schema = fixtures.properties__schema_yml
        for postgres, spark in (
            ("type: text", "type: string"),
            ("type: integer", "type: bigint"),
            ("type: timestamp without time zone", "type: timestamp"),
        ):
            schema = schema.replace(postgres, spark)
        return {"schema.yml": schema}

    @staticmethod
    def seed_enabled_types() -> dict[str, str]:
        return {"seed_id": "string", "birthday": "date"}

    @staticmethod
    def seed_tricky_types() -> dict[str, str]:
        return {"seed_id_str": "string", "looks_like_a_bool": "string", "looks_like_a_date": "string"}
