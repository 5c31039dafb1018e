"""dbt's own tests: ephemeral.

Two of them end by comparing a whole statement with Postgres' one, so they stand here again with Spark's.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from dbt.tests.adapter.ephemeral import test_ephemeral as ephemeral
from dbt.tests.util import check_relations_equal, run_dbt


class TestEphemeralErrorHandling(ephemeral.TestEphemeralErrorHandling):
    pass


def ran(model: str) -> str:
    """The statement of a model, without the number of the schema and without white space."""
    text = Path(f"target/run/test/models/{model}.sql").read_text("utf-8")
    return "".join(re.sub(r"test\d+_test_ephemeral", "schema", text).split())


class TestEphemeralMulti(ephemeral.TestEphemeralMulti):
    def test_ephemeral_multi(self, project: Any) -> None:
        run_dbt(["seed"])
        assert len(run_dbt(["run"])) == 3
        for model in ("dependent", "double_dependent", "super_dependent"):
            check_relations_equal(project.adapter, ["seed", model])
        assert ran("double_dependent") == "".join(
            [
                "create",
                "or",
                "replace",
                "view",
                "`main`.`schema`.`double_dependent`",
                "as",
                "with",
                "__dbt__cte__base",
                "as",
                "(select",
                "*",
                "from",
                "schema.seed),",
                "__dbt__cte__base_copy",
                "as",
                "(select",
                "*",
                "from",
                "__dbt__cte__base)",
                "--",
                "base_copy",
                "just",
                "pulls",
                "from",
                "base.",
                "Make",
                "sure",
                "the",
                "listed",
                "--",
                "graph",
                "of",
                "CTEs",
                "all",
                "share",
                "the",
                "same",
                "dbt_cte__base",
                "cte",
                "select",
                "*",
                "from",
                "__dbt__cte__base",
                "where",
                "gender",
                "=",
                "'Male'",
                "union",
                "all",
                "select",
                "*",
                "from",
                "__dbt__cte__base_copy",
                "where",
                "gender",
                "=",
                "'Female'",
            ]
        )


class TestEphemeralNested(ephemeral.TestEphemeralNested):
    def test_ephemeral_nested(self, project: Any) -> None:
        assert len(run_dbt(["run"])) == 2
        assert ran("root_view") == "".join(
            [
                "create",
                "or",
                "replace",
                "view",
                "`main`.`schema`.`root_view`",
                "as",
                "with",
                "__dbt__cte__ephemeral_level_two",
                "as",
                "(select",
                "*",
                "from",
                "`main`.`schema`.`source_table`),",
                "__dbt__cte__ephemeral",
                "as",
                "(select",
                "*",
                "from",
                "__dbt__cte__ephemeral_level_two)",
                "select",
                "*",
                "from",
                "__dbt__cte__ephemeral",
            ]
        )
