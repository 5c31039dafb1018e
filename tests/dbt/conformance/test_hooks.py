"""dbt's own tests: hooks. What they look for in the target is Postgres' there, and Headrace's here."""

from __future__ import annotations

from typing import Any

import pytest
from dbt.tests.adapter.hooks import test_model_hooks as model_hooks
from dbt.tests.adapter.hooks import test_run_hooks as run_hooks


def check_target(found: dict[str, Any], state: str, project: Any) -> None:
    assert found["test_state"] == state
    assert found["target_dbname"] == project.database == "main"
    assert found["target_host"] == project.adapter.config.credentials.service
    assert found["target_user"] == "dbt"
    assert found["target_name"] == "default"
    assert found["target_schema"] == project.test_schema
    assert found["target_threads"] == 4
    assert found["target_type"] == "headrace"
    assert found["target_pass"] == ""
    assert found["run_started_at"]
    assert found["invocation_id"]
    assert found["thread_id"].startswith("Thread-") or found["thread_id"] == "MainThread"


class ModelHooks:
    def check_hooks(self, state: str, project: Any, host: str | None, count: int = 1) -> None:
        for found in self.get_ctx_vars(state, count=count, project=project):
            check_target(found, state, project)
            assert found["thread_id"].startswith("Thread-")


class TestDuplicateHooksInConfigs(model_hooks.TestDuplicateHooksInConfigs):
    pass


class TestHookRefs(ModelHooks, model_hooks.TestHookRefs):
    pass


class TestHooksRefsOnSeeds(model_hooks.TestHooksRefsOnSeeds):
    pass


class TestPrePostModelHooks(ModelHooks, model_hooks.TestPrePostModelHooks):
    pass


class TestPrePostModelHooksInConfig(ModelHooks, model_hooks.TestPrePostModelHooksInConfig):
    pass


class TestPrePostModelHooksInConfigKwargs(ModelHooks, model_hooks.TestPrePostModelHooksInConfigKwargs):
    pass


class TestPrePostModelHooksInConfigWithCount(ModelHooks, model_hooks.TestPrePostModelHooksInConfigWithCount):
    pass


class TestPrePostModelHooksOnSeeds(model_hooks.TestPrePostModelHooksOnSeeds):
    pass


class TestPrePostModelHooksOnSeedsPlusPrefixed(model_hooks.TestPrePostModelHooksOnSeedsPlusPrefixed):
    pass


class TestPrePostModelHooksOnSeedsPlusPrefixedWhitespace(
    model_hooks.TestPrePostModelHooksOnSeedsPlusPrefixedWhitespace
):
    pass


class TestPrePostModelHooksOnSnapshots(model_hooks.TestPrePostModelHooksOnSnapshots):
    pass


class TestPrePostModelHooksUnderscores(ModelHooks, model_hooks.TestPrePostModelHooksUnderscores):
    pass


class TestPrePostSnapshotHooksInConfigKwargs(model_hooks.TestPrePostSnapshotHooksInConfigKwargs):
    pass


class TestAfterRunHooks(run_hooks.TestAfterRunHooks):
    pass


class TestPrePostRunHooks(run_hooks.TestPrePostRunHooks):
    @pytest.fixture(scope="class")
    def project_config_update(self) -> dict[str, Any]:
        create = "create table {{ target.schema }}"
        drop = "drop table {{ target.schema }}"
        insert = "insert into {{ target.schema }}"
        return {
            "on-run-start": [
                "{{ custom_run_hook('start', target, run_started_at, invocation_id) }}",
                f"{create}.start_hook_order_test ( id int )",
                f"{drop}.start_hook_order_test",
                "{{ log(env_var('TERM_TEST'), info=True) }}",
            ],
            "on-run-end": [
                "{{ custom_run_hook('end', target, run_started_at, invocation_id) }}",
                f"{create}.end_hook_order_test ( id int )",
                f"{drop}.end_hook_order_test",
                f"{create}.schemas ( schema string )",
                insert + ".schemas (schema) values {% for schema in schemas %}( '{{ schema }}' )"
                "{% if not loop.last %},{% endif %}{% endfor %}",
                f"{create}.db_schemas ( db string, schema string )",
                insert + ".db_schemas (db, schema) values {% for db, schema in database_schemas %}"
                "('{{ db }}', '{{ schema }}' ){% if not loop.last %},{% endif %}{% endfor %}",
            ],
            "seeds": {"quote_columns": False},
        }

    def check_hooks(self, state: str, project: Any, host: str | None) -> None:
        check_target(self.get_ctx_vars(state, project), state, project)
