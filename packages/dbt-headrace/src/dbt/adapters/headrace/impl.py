"""The adapter: what dbt asks of a database, in Headrace's words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.impl import ConstraintSupport, FreshnessResponse, PythonJobHelper
from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation, InformationSchema
from dbt.adapters.capability import Capability, CapabilityDict, CapabilitySupport, Support
from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.contracts.macros import MacroResolverProtocol
from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.protocol import AdapterConfig
from dbt.adapters.sql.impl import SQLAdapter
from dbt_common.contracts.constraints import ColumnLevelConstraint, ConstraintType, ModelLevelConstraint
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError

from dbt.adapters.headrace import nested, seeds, streams
from dbt.adapters.headrace.building import Builder, is_made_for, temporary_view
from dbt.adapters.headrace.catalog import CatalogReader, TableSettings
from dbt.adapters.headrace.column import HeadraceColumn, bare, column_of, is_column_name, quote
from dbt.adapters.headrace.connections import HeadraceConnectionManager
from dbt.adapters.headrace.constraints import constraints_of_column, constraints_of_model, named_constraints
from dbt.adapters.headrace.cursor import Cursor
from dbt.adapters.headrace.incremental_code import incremental_code, is_compiled_alike
from dbt.adapters.headrace.python_models import HeadracePythonJobHelper
from dbt.adapters.headrace.relation import HeadraceRelation, HeadraceRelationType
from dbt.adapters.headrace.relation_configs import DynamicTableChanges, DynamicTableConfig, changes_of
from dbt.adapters.headrace.sessions import in_zone
from headrace.errors import Forbidden, HeadraceError, NotFound

if TYPE_CHECKING:
    import agate

_log = AdapterLogger("Headrace")


@dataclass
class HeadraceConfig(AdapterConfig):
    """What a model may set besides dbt's own configs."""

    partition_by: list[str] | str | None = None
    clustered_by: list[str] | str | None = None
    properties: dict[str, Any] | None = None
    views_enabled: bool | None = None
    refresh_vc: str | None = None
    refresh_interval: str | None = None
    refresh_mode: str | None = None
    target_lag: str | None = None
    merge_update_columns: list[str] | str | None = None
    merge_exclude_columns: list[str] | str | None = None
    incremental_predicates: list[str] | str | None = None


class HeadraceAdapter(SQLAdapter):
    """A thin client: the work is done on the server."""

    Relation = HeadraceRelation
    Column = HeadraceColumn
    ConnectionManager = HeadraceConnectionManager
    AdapterSpecificConfigs = HeadraceConfig
    connections: HeadraceConnectionManager

    CONSTRAINT_SUPPORT = {  # noqa: RUF012 — dbt's own form
        ConstraintType.check: ConstraintSupport.ENFORCED,
        ConstraintType.not_null: ConstraintSupport.ENFORCED,
        ConstraintType.unique: ConstraintSupport.NOT_SUPPORTED,
        ConstraintType.primary_key: ConstraintSupport.NOT_SUPPORTED,
        ConstraintType.foreign_key: ConstraintSupport.NOT_SUPPORTED,
    }

    _capabilities = CapabilityDict(
        {
            Capability.SchemaMetadataByRelations: CapabilitySupport(support=Support.Full),
            Capability.GetCatalogForSingleRelation: CapabilitySupport(support=Support.Full),
            Capability.TableLastModifiedMetadata: CapabilitySupport(support=Support.Full),
            Capability.TableLastModifiedMetadataBatch: CapabilitySupport(support=Support.Full),
            Capability.MicrobatchConcurrency: CapabilitySupport(support=Support.Full),
        }
    )

    # ------------------------------------------------------------------ plain facts

    @classmethod
    def date_function(cls) -> str:
        return "current_timestamp()"

    @classmethod
    def is_cancelable(cls) -> bool:
        return True

    @classmethod
    def quote(cls, identifier: str) -> str:
        return quote(identifier)

    @classmethod
    def convert_text_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "string"

    @classmethod
    def convert_number_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return seeds.number_type(agate_table.columns[col_idx].values())

    @classmethod
    def convert_integer_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return seeds.number_type(agate_table.columns[col_idx].values())

    @classmethod
    def convert_datetime_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "timestamp"

    @classmethod
    def convert_time_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "string"

    def timestamp_add_sql(self, add_to: str, number: int = 1, interval: str = "hour") -> str:
        return f"{add_to} + interval {number} {interval}"

    def valid_incremental_strategies(self) -> list[str]:
        return ["append", "merge", "delete+insert", "insert_overwrite", "microbatch"]

    def debug_query(self) -> None:
        """Asks whether statements are run at all, on the virtual cluster of the profile, and where dbt would build."""
        self.execute("select 1 as id")
        named = self.connections.get_thread_connection().credentials
        self._require_workspace(named.database)
        if named.schema.lower() not in {name.lower() for name in self.list_schemas(named.database)}:
            _log.info(f"The schema {named.database}.{named.schema} is not there yet: dbt makes it with the first run.")

    # ------------------------------------------------------------------ schemas and relations

    def _rows(self, sql: str) -> list[dict[str, Any]]:
        """The rows of a statement of the adapter's own. Raises Headrace's error as it is."""
        cursor = self._cursor(sql)
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def _cursor(self, sql: str) -> Cursor:
        try:
            _, cursor = self.connections.add_query(self.connections._add_query_comment(sql), auto_begin=False)
        except DbtDatabaseError as error:
            if isinstance(error.__cause__, HeadraceError):
                raise error.__cause__ from None
            raise
        found: Cursor = cursor
        return found

    def list_schemas(self, database: str) -> list[str]:
        """dbt gives the name in quotes when it looks which schemas to make."""
        database = database.strip("`")
        with self.connections.exception_handler("SHOW SCHEMAS"):
            names = [str(next(iter(row.values()))) for row in self._rows("SHOW SCHEMAS")]
        if self._is_home(database):
            return names
        prefix = f"{database.lower()}__"  # So Spark's catalog names the schemas of other workspaces.
        return [name[len(prefix) :] for name in names if name.lower().startswith(prefix)]

    def _is_home(self, database: str) -> bool:
        """Whether it is the lake's own workspace."""
        home: str = self.connections.get_thread_connection().handle.home
        return database.lower() == home.lower()

    def create_schema(self, relation: BaseRelation) -> None:
        """In a workspace that is there: CREATE SCHEMA would make one of a slip in the profile."""
        self._require_workspace(relation.database or "")
        super().create_schema(relation)

    def _require_workspace(self, database: str) -> None:
        if not self._is_home(database) and not self.list_schemas(database):
            raise DbtRuntimeError(
                f"There is no workspace {database}, or you may see nothing in it. Mend workspace in the profile (or "
                f"database in the model's config); or let an administrator make it with its first schema: "
                f"CREATE SCHEMA {database}.name."
            )

    def check_schema_exists(self, database: str, schema: str) -> bool:
        try:
            self._rows(f"SHOW TABLES IN {quote(database)}.{quote(schema)} LIMIT 1")
        except (NotFound, Forbidden):
            return False
        return True

    def list_relations_without_caching(self, schema_relation: BaseRelation) -> list[BaseRelation]:
        """The tables, views and dynamic tables of a schema, its table streams and its functions."""
        schema = schema_relation.without_identifier().include(identifier=False)
        try:
            tables = self._rows(f"SHOW TABLES IN {schema.render()}")
            streams_there = self._rows(f"SHOW TABLE STREAMS IN {schema.render()}")
        except (NotFound, Forbidden):
            return []
        except HeadraceError as error:
            with self.connections.exception_handler("SHOW TABLES"):
                raise error
        kinds = {str(row["table_name"]): _kind(row) for row in tables}
        kinds |= {str(row["name"]): HeadraceRelationType.External for row in streams_there}
        functions = [each for each in self.list_functions(schema_relation) if each.identifier not in kinds]
        return [*(self._relation(schema_relation, name, kind) for name, kind in kinds.items()), *functions]

    @available.parse_list
    def list_functions(self, schema_relation: BaseRelation) -> list[BaseRelation]:
        """Functions belong to the lake's own workspace."""
        home = self.connections.get_thread_connection().handle.home
        if (schema_relation.database or home).lower() != home.lower():
            return []
        with self.connections.exception_handler("SHOW USER FUNCTIONS"):
            try:
                rows = self._rows(f"SHOW USER FUNCTIONS IN {quote(schema_relation.schema or '')}")
            except Forbidden:
                return []  # Who may read single tables of the schema is not told what else is there.
        # Those of the session and of Delta's have no schema before their names.
        names = [str(row["function"]).rsplit(".", 1)[1] for row in rows if "." in str(row["function"])]
        return [self._relation(schema_relation, name, HeadraceRelationType.Function) for name in names]

    def _relation(self, schema: BaseRelation, name: str, kind: HeadraceRelationType) -> BaseRelation:
        return self.Relation.create(
            database=schema.database,
            schema=schema.schema,
            identifier=name,
            type=kind,  # type: ignore[arg-type]
            quote_policy={"database": True, "schema": True, "identifier": True},
        )

    def get_columns_in_relation(self, relation: BaseRelation) -> list[HeadraceColumn]:
        return [HeadraceColumn.from_description(name, kind) for name, kind, _ in self._described(relation)]

    def _described(self, relation: BaseRelation) -> list[tuple[str, str, str]]:
        """Names, types and comments of columns. Those of a relation that the node has not changed since are
        remembered."""
        remembered: dict[str, list[tuple[str, str, str]]]
        remembered = self.connections.get_thread_connection().handle.remembered
        name = relation.render()
        if name not in remembered:
            try:
                rows = self._rows(f"DESC TABLE {name}")
            except NotFound:
                return []
            except HeadraceError as error:
                with self.connections.exception_handler("DESC TABLE"):
                    raise error
            remembered[name] = [
                (str(row["column_name"]), str(row["data_type"]), str(row["comment"] or "")) for row in rows
            ]
        return remembered[name]

    @available.parse(lambda *a, **k: {})
    def new_comments(
        self, relation: BaseRelation, documented: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Mapping[str, Any]]:
        """Those of the documented columns whose comments differ from what is there: each one is a commit."""
        there = {name.lower(): comment for name, _, comment in self._described(relation)}
        return {
            name: told
            for name, told in documented.items()
            if str(told.get("description") or "") != there.get(name.lower(), "")
        }

    @available.parse(lambda *a, **k: "")
    def comment_of(self, relation: BaseRelation) -> str:
        return self._settings(relation).comment or ""

    def get_missing_columns(self, from_relation: BaseRelation, to_relation: BaseRelation) -> list[HeadraceColumn]:
        """Names are the same whatever their case."""
        there = {column.name.lower() for column in self.get_columns_in_relation(to_relation)}
        return [each for each in self.get_columns_in_relation(from_relation) if each.name.lower() not in there]

    @available.parse_list
    def spelled_as(self, columns: list[HeadraceColumn], others: list[HeadraceColumn]) -> list[HeadraceColumn]:
        """The columns, with the names of the other ones where these differ in case only, and with their types where
        these differ in the order of fields only."""
        there = {column.name.lower(): column for column in others}

        def spelled(column: HeadraceColumn) -> HeadraceColumn:
            other = there.get(column.name.lower())
            if other is None:
                return column
            kind = other.dtype if nested.same_fields(column.dtype, other.dtype) else column.dtype
            return replace(column, column=other.name, dtype=kind)

        return [spelled(each) for each in columns]

    @available.parse_list
    def taken_by_name(
        self, source: BaseRelation, target: BaseRelation, columns: list[HeadraceColumn], typed: bool = False
    ) -> list[str]:
        """Expressions for columns of the source as the target has them: a struct by the names of its fields. With
        `typed`, the others have their types, too."""
        plain = [f"cast({each.quoted} as {each.data_type})" if typed else each.quoted for each in columns]
        if not any(nested.has_fields(column.dtype) for column in columns):
            return plain
        given, wanted = (
            {column.name.lower(): column.dtype for column in self.get_columns_in_relation(each)}
            for each in (source, target)
        )

        def taken(column: HeadraceColumn, as_it_is: str) -> str:
            name = column.name.lower()
            has_fields = nested.has_fields(wanted[name])
            return nested.by_name(column.quoted, given[name], wanted[name]) if has_fields else as_it_is

        return [taken(column, as_it_is) for column, as_it_is in zip(columns, plain, strict=True)]

    @available.parse(lambda *a, **k: "")
    def in_order_of(self, query: str, target: BaseRelation, spelled: bool = False) -> str:
        """The query, with the fields of structs by their names as the target's columns have them. With `spelled`, the
        columns have the target's names where these differ in case only."""
        there = {column.name.lower(): column for column in self.get_columns_in_relation(target)}
        wanted = {name: column.dtype for name, column in there.items()}
        if not spelled and not any(map(nested.has_fields, wanted.values())):
            return query
        empty = f"select * from (\n{query}\n) as __dbt_sbq where false"
        given = self.get_column_schema_from_query(self.connections._add_query_comment(empty))

        def taken(column: HeadraceColumn) -> str:
            kind = wanted.get(column.name.lower(), "")
            name = there.get(column.name.lower(), column).quoted if spelled else column.quoted
            if column.dtype == kind or not nested.has_fields(kind):
                return column.quoted if name == column.quoted else f"{column.quoted} as {name}"
            return f"{nested.by_name(column.quoted, column.dtype, kind)} as {name}"

        columns = ", ".join(map(taken, given))
        return f"select {columns} from (\n{query}\n) as __dbt_in_order"

    @available.parse_none
    def refuse_shared_name(self, model: Mapping[str, Any], graph: Mapping[str, Any]) -> None:
        """dbt looks for nodes with one name, and takes those for two that differ in case. What the adapter makes on
        its way to a node has a name, too."""
        own = _name_of(model)
        for node in graph["nodes"].values():
            if (
                node["resource_type"] not in ("model", "seed", "snapshot")
                or node["unique_id"] == model["unique_id"]
                or node["config"].get("materialized") == "ephemeral"
            ):
                continue
            other = _name_of(node)
            if other == own:
                raise DbtRuntimeError(
                    f"{model['unique_id']} and {node['unique_id']} are both to be {'.'.join(own)}: names that differ "
                    "in case only are the same here. Give one of them another name or alias."
                )
            if other[:-1] == own[:-1] and (is_made_for(own[-1], other[-1]) or is_made_for(other[-1], own[-1])):
                raise DbtRuntimeError(
                    f"{model['unique_id']} and {node['unique_id']} are to be {'.'.join(own)} and {'.'.join(other)}, "
                    "and what is built on the way to one of them may have the name of the other. Give the longer one "
                    "another name or alias."
                )

    @available.parse(lambda *a, **k: "")
    def converted(self, column: HeadraceColumn, new_type: str) -> str:
        """An expression for a column with another type."""
        return nested.by_name(column.quoted, column.dtype, new_type, leaves_out=True)

    @available.parse_none
    def require_partitions(self, relation: BaseRelation, names: list[str]) -> None:
        """Raise unless the table is partitioned by these: Delta would replace all of another one."""
        with self.connections.exception_handler("DESCRIBE DETAIL"):
            there = [str(name) for name in self._rows(f"DESCRIBE DETAIL {relation.render()}")[0]["partitionColumns"]]
        if [name.lower() for name in there] != [bare(name).lower() for name in names]:
            raise DbtRuntimeError(
                f"The model is partitioned by {', '.join(names)}, and its table {relation.render()} by "
                f"{', '.join(there) or 'nothing'}: insert_overwrite would replace rows of other partitions, too. Run "
                "the model once with --full-refresh."
            )

    @available.parse(lambda *a, **k: (None, None))
    def add_query(self, sql: str, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """With the comment that tells the node, as all statements have it."""
        found: tuple[Any, Any] = super().add_query(self.connections._add_query_comment(sql), *args, **kwargs)
        return found

    def expand_column_types(self, goal: BaseRelation, current: BaseRelation) -> None:
        """Spark's texts have no length that could be too short."""

    # ------------------------------------------------------------------ what is built on the way

    @property
    def _builder(self) -> Builder:
        return Builder(self)

    @available.parse_none
    def temporary_view(self, relation: BaseRelation, suffix: str) -> BaseRelation:
        """For the rows on their way to a relation: known to its session only, so nobody else can be in the way. A view
        holds no rows, and a table stream that it reads stays where it is."""
        return temporary_view(relation, suffix)

    @available.parse_none
    def staging_table(self, relation: BaseRelation, mark: str) -> BaseRelation:
        """For rows that must be computed before they can be taken, by the process with this mark."""
        return self._builder.staging_table(relation, mark)

    @available.parse_none
    def drop_leftovers(self, relation: BaseRelation) -> None:
        """Have a relation of the build dropped when the node has ended, however it ends."""
        self._builder.under_way.leftovers.append(relation)

    @available.parse_none
    def built_beside(self, existing: BaseRelation, target: BaseRelation) -> BaseRelation:
        """Where a relation is built while something else has its name."""
        return self._builder.built_beside(existing, target)

    @available.parse_none
    def put_in_place(self) -> None:
        """Give what was built beside its place the place, if there is such a thing."""
        self._builder.put_in_place()

    @available.parse(lambda *a, **k: False)
    def settle_interrupted(self, target: BaseRelation) -> bool:
        """Do what a process that was killed has left to do for a relation, and tell whether it has its place by it."""
        return self._builder.settle_interrupted(target)

    @available.parse(lambda *a, **k: True)
    def is_compiled_alike(self, context: dict[str, Any]) -> bool:
        """Whether the query of a model is the same for its first load and for later runs, in the context of its
        materialization."""
        return is_compiled_alike(context, context["model"])

    def pre_model_hook(self, config: Mapping[str, Any]) -> None:
        self._builder.begin()

    def post_model_hook(self, config: Mapping[str, Any], context: Any) -> None:
        self._builder.end()

    def is_there(self, relation: BaseRelation) -> bool:
        """As the lake says, not dbt's memory. Who cannot tell says yes: then nothing is taken away."""
        try:
            self._rows(f"DESC TABLE {relation.render()}")
        except NotFound:
            return False
        except (HeadraceError, DbtRuntimeError):
            return True
        return True

    def last_changed(self, relation: BaseRelation) -> datetime | None:
        zone = self.connections.get_thread_connection().handle.zone
        with self.connections.exception_handler("the time of the last change"):
            changed = CatalogReader(self._rows).last_modified(relation)
        return None if changed is None else changed.replace(tzinfo=zone)

    def drop_relation(self, relation: BaseRelation) -> None:
        self._builder.under_way.forget(relation)
        super().drop_relation(relation)  # type: ignore[no-untyped-call]

    def rename_relation(self, from_relation: BaseRelation, to_relation: BaseRelation) -> None:
        super().rename_relation(from_relation, to_relation)  # type: ignore[no-untyped-call]
        self._builder.under_way.forget(from_relation)

    # ------------------------------------------------------------------ catalog and freshness

    def _get_one_catalog(
        self, information_schema: InformationSchema, schemas: set[str], used_schemas: frozenset[tuple[str, str]]
    ) -> agate.Table:
        relations = [
            relation
            for schema in sorted(schemas)
            for relation in self.list_relations(information_schema.database, schema)
        ]
        return self._catalog_of(relations, used_schemas)

    def _get_one_catalog_by_relations(
        self,
        information_schema: InformationSchema,
        relations: list[BaseRelation],
        used_schemas: frozenset[tuple[str, str]],
    ) -> agate.Table:
        return self._catalog_of(relations, used_schemas)

    def _catalog_of(self, relations: Iterable[BaseRelation], used_schemas: frozenset[tuple[str, str]]) -> agate.Table:
        with self.connections.exception_handler("the catalog"):
            table = CatalogReader(self._rows).table(relations)
        return self._catalog_filter_table(table, used_schemas)

    def get_catalog_for_single_relation(self, relation: BaseRelation) -> Any:
        with self.connections.exception_handler("the catalog"):
            return CatalogReader(self._rows).entry(relation)

    def calculate_freshness_from_metadata_batch(
        self, sources: list[BaseRelation], macro_resolver: MacroResolverProtocol | None = None
    ) -> tuple[list[AdapterResponse | None], dict[BaseRelation, FreshnessResponse]]:
        """The time of a table's newest commit. A table stream is as fresh as its table. What cannot be told is left
        out: dbt asks for it by itself, and the others are not held up."""
        self.connections.open(self.connections.get_thread_connection())
        found: dict[BaseRelation, FreshnessResponse] = {}
        for source in sources:
            with suppress(DbtRuntimeError):
                found[source] = self._freshness(source)
        return [], found

    def calculate_freshness_from_metadata(
        self, source: BaseRelation, macro_resolver: MacroResolverProtocol | None = None
    ) -> tuple[AdapterResponse | None, FreshnessResponse]:
        return None, self._freshness(source)

    def _freshness(self, source: BaseRelation) -> FreshnessResponse:
        connection = self.connections.get_thread_connection()
        self.connections.open(connection)
        zone = connection.handle.zone
        with self.connections.exception_handler("the time of the last change"):
            changed = CatalogReader(self._rows).last_modified(source)
        return self._create_freshness_response(
            None if changed is None else changed.replace(tzinfo=zone), datetime.now(zone)
        )

    def _create_freshness_response(
        self, last_modified: datetime | None, snapshotted_at: datetime | None
    ) -> FreshnessResponse:
        connection = self.connections.get_if_exists()
        if connection is not None and connection.handle is not None:
            zone = connection.handle.zone
            last_modified = last_modified and in_zone(last_modified, zone)
            snapshotted_at = snapshotted_at and in_zone(snapshotted_at, zone)
        return super()._create_freshness_response(last_modified, snapshotted_at)

    # ------------------------------------------------------------------ constraints

    @classmethod
    def render_column_constraint(cls, constraint: ColumnLevelConstraint) -> str | None:
        """Constraints are properties of the table, see `constraint_properties`."""
        return None

    @classmethod
    def render_model_constraint(cls, constraint: ModelLevelConstraint) -> str | None:
        return None

    @available
    @classmethod
    def constraint_properties(
        cls, columns: Mapping[str, Mapping[str, Any]], constraints: Iterable[Mapping[str, Any]]
    ) -> dict[str, str]:
        """The constraints of a model as Delta's table properties: so the one statement that builds the table also
        checks its rows, and nothing is left of one that fails."""
        asked: list[tuple[str | None, str, str]] = []
        for column in columns.values():
            for raw in column.get("constraints") or ():
                parsed = cls._parse_column_constraint(dict(raw))
                cls.process_parsed_constraint(parsed, cls.render_column_constraint)
                asked += constraints_of_column(str(column["name"]), parsed)
        for raw in constraints:
            model = cls._parse_model_constraint(dict(raw))
            cls.process_parsed_constraint(model, cls.render_model_constraint)
            asked += constraints_of_model(model)
        return named_constraints(asked)

    # ------------------------------------------------------------------ for macros

    @available.parse(lambda *a, **k: {})
    def standardize_grants_dict(self, grants_table: agate.Table) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for row in grants_table:
            found.setdefault(str(row["privilege"]).lower(), []).append(str(row["user_name"]))
        return found

    @available
    @classmethod
    def granted_again(
        cls,
        missing: Mapping[str, list[str]],
        asked: Mapping[str, list[str] | str],
        needless: Mapping[str, list[str]],
    ) -> dict[str, list[str]]:
        """What has to be granted after the needless is revoked: what is missing, and what goes with an ALL."""
        lose_all = {str(user).lower() for user in needless.get("all", ())}
        found = {privilege: list(users) for privilege, users in missing.items()}
        for privilege, users in asked.items():
            kept = found.setdefault(privilege, [])
            known = {str(user).lower() for user in kept}
            names = [users] if isinstance(users, str) else users
            kept += [user for user in names if str(user).lower() in lose_all - known]
        return {privilege: users for privilege, users in found.items() if users}

    @available
    @classmethod
    def literal(cls, value: Any) -> str:
        """A value as SQL writes it."""
        return seeds.literal(value)

    @available
    @classmethod
    def nested_value(cls, value: Any, kind: str) -> str:
        """An array, a struct or a map as SQL has it."""
        return nested.value_of(value, str(kind))

    @available
    @classmethod
    def python_literal(cls, value: Any) -> str:
        """Names or properties as Python writes them."""
        if isinstance(value, Mapping):
            return repr({str(key): str(each) for key, each in value.items()})
        return repr([str(each) for each in value])

    @available
    @classmethod
    def bare(cls, name: str) -> str:
        """The name of a column that a config may have in quotes."""
        return bare(str(name))

    @available.parse_none
    def read_seed(
        self, agate_table: agate.Table, model: Mapping[str, Any], column_types: Mapping[str, str] | None
    ) -> seeds.Seed:
        """The types of a seed's columns, and its rows as texts of VALUES."""
        return seeds.read(agate_table, model, column_types or {}, lambda place: self.convert_type(agate_table, place))

    @available
    def named_columns(self, config: str, names: list[str] | str | None, columns: list[HeadraceColumn]) -> list[str]:
        """The columns that a config names, in quotes. Raises for a slip: it would be about no column, without a
        word."""
        return [self.key_of(config, name, columns, takes_expressions=False) for name in _listed(names)]

    @available
    def left_out_columns(self, config: str, names: list[str] | str | None, columns: list[HeadraceColumn]) -> list[str]:
        """The names of the columns that a config leaves out, bare and in lower case. One that is not there is left out
        anyway, as where the config is meant for many models: it is told."""
        for name in _listed(names):
            if column_of(name, columns) is None:
                there = ", ".join(dict.fromkeys(each.name for each in columns))
                _log.warning(f"{config} names the column '{name}', and there are: {there}.")
        return [bare(name).lower() for name in _listed(names)]

    @available
    def key_of(self, config: str, text: str, columns: list[HeadraceColumn], takes_expressions: bool = True) -> str:
        """The column that a part of a key names, in quotes; or the expression that it is."""
        column = column_of(text, columns)
        if column is not None:
            return column.quoted
        if takes_expressions and not is_column_name(text):
            return text
        there = ", ".join(each.name for each in columns)
        raise DbtRuntimeError(f"{config} names the column '{text}', and there are: {there}.")

    @available
    @classmethod
    def is_column_name(cls, text: str) -> bool:
        return is_column_name(text)

    # ------------------------------------------------------------------ table streams

    @available.parse(lambda *a, **k: False)
    def is_partial(self) -> bool:
        """Whether this invocation builds with a part of the rows only, as --empty and --sample do."""
        return self.connections.is_partial

    @available.parse_none
    def full_load(self, context: dict[str, Any]) -> streams.FullLoad:
        """How an incremental model is loaded whole, in the context of its materialization, with regard to the table
        streams that it reads now, or will read when it is incremental. --empty and --sample take nothing from streams,
        and so set none."""
        model, compiled_code = context["model"], str(context["compiled_code"])
        if self.is_partial():
            return streams.FullLoad(compiled_code)
        later_code = incremental_code(context, model)
        reader = self._streams()
        with self.connections.exception_handler("the table streams of the model"):
            named = self._named_streams(context, (compiled_code, later_code), reader.place)
            return reader.full_load(model, compiled_code, later_code, named)

    @available.parse_none
    def refuse_streams_of_others(self, context: dict[str, Any], target: BaseRelation) -> None:
        """A table that is made anew takes what the streams have that its query reads."""
        if self.is_partial():
            return
        reader, code = self._streams(), str(context["compiled_code"])
        with self.connections.exception_handler("the table streams of the model"):
            reader.refuse_others(code, self._named_streams(context, (code, ""), reader.place), target.render())

    @available.parse_none
    def refuse_streams(self, code: str, what: str, instead: str) -> None:
        """For what is no place for changes: it keeps those of the last run only."""
        if self.is_partial():
            return
        with self.connections.exception_handler("the table streams of the model"):
            self._streams().refuse_all(code, what, instead)

    def _named_streams(
        self, context: dict[str, Any], codes: tuple[str, str | None], place: streams.Place
    ) -> list[Mapping[str, Any]]:
        """The sources that these queries of a model name and that are streams."""
        return [
            source
            for source in streams.named_sources(context["model"], codes, context["graph"]["sources"], place)
            if (found := self.get_relation(source["database"], source["schema"], source["identifier"])) is not None
            and found.type == HeadraceRelationType.External
        ]

    @available.parse_none
    def refuse_one_that_came(self, target: BaseRelation) -> None:
        """The first load of a table takes what streams have. Where another process has loaded it since dbt looked, its
        rows would be replaced by what the streams have had since."""
        if self.is_there(target):
            raise DbtRuntimeError(
                f"Another process has made {target.render()} since this one looked. Run it again: it adds what is new."
            )

    @available.parse_none
    def refuse_one_replaced(self, target: BaseRelation) -> None:
        """Likewise where that was loaded while this statement waited for the streams. Nothing is lost."""
        with self.connections.exception_handler("DESC HISTORY"):
            version = int(self._rows(f"DESC HISTORY {target.render()} LIMIT 1")[0]["version"])
        if version:
            raise DbtRuntimeError(
                f"Another process has made {target.render()} while this one did, and this one's rows took the place of "
                f"that one's: they are its version {version - 1}.\nHint: To have both: INSERT INTO {target.render()} "
                f"SELECT * FROM {target.render()} VERSION AS OF {version - 1}"
            )

    @available.parse_list
    def after_load(self, load: streams.FullLoad, target: BaseRelation) -> list[str]:
        """The statements by which the table streams beside a load go on where it ended."""
        with self.connections.exception_handler("the table streams of the model"):
            return self._streams().after(load, target.render())

    @available.parse(lambda *a, **k: False)
    def settle_streams(self, model: Mapping[str, Any], temporary: BaseRelation, target: BaseRelation) -> bool:
        """Whether the new rows of an incremental model come from table streams. If so, these stand where the table's
        rows end when this returns, or an error says what to do."""
        with self.connections.exception_handler("the table streams of the model"):
            read = self._streams().read_by(f"select * from {temporary.render()}")
        if not read or self.is_partial():
            return bool(read)
        streams.refuse_batches(model, read)
        for statement in streams.settled(read, self._settings(target).properties, target.render()):
            self.execute(statement)
        return True

    def _streams(self) -> streams.StreamReader:
        connection = self.connections.get_thread_connection()
        named = connection.credentials
        return streams.StreamReader(self._rows, streams.Place(named.database, named.schema, connection.handle.home))

    def _settings(self, relation: BaseRelation) -> TableSettings:
        with self.connections.exception_handler("DESC EXTENDED"):
            return CatalogReader(self._rows).settings(relation)

    @available.parse_none
    def kept_settings(self, relation: BaseRelation, gone: Iterable[str]) -> TableSettings:
        """What stays of a table when it is written anew without these columns."""
        settings = self._settings(relation)
        with self.connections.exception_handler("the properties of the table"):
            return settings.without(gone)

    # ------------------------------------------------------------------ dynamic tables

    @available.parse_none
    def dynamic_table_config(self, config: Mapping[str, Any], sql: str, description: str | None) -> DynamicTableConfig:
        """What a model asks for."""
        with self.connections.exception_handler("the query of the model"):
            return DynamicTableConfig.asked(config, sql, description)

    @available.parse_none
    def dynamic_table_changes(self, relation: BaseRelation, asked: DynamicTableConfig, sql: str) -> DynamicTableChanges:
        """What must be done so that the dynamic table that is there becomes the one that is asked for."""
        with self.connections.exception_handler("the settings of a dynamic table"):
            return changes_of(self._rows, relation.render(), asked, sql)

    # ------------------------------------------------------------------ Python models

    @property
    def default_python_submission_method(self) -> str:
        return "server"

    @property
    def python_submission_helpers(self) -> dict[str, type[PythonJobHelper]]:
        return {"server": HeadracePythonJobHelper}

    def submit_python_job(self, parsed_model: dict[str, Any], compiled_code: str) -> AdapterResponse:
        """Run the model's code in this thread's session: Ctrl-C cancels it as it does a statement."""
        session = self.connections.session_of_node()
        with self.connections.exception_handler(f"the Python model {parsed_model['name']}"):
            result = session.run_python(compiled_code, parsed_model["name"])
        return AdapterResponse(_message="OK", code="OK", query_id=getattr(result, "job_id", None))

    def generate_python_submission_response(self, submission_result: Any) -> AdapterResponse:
        return AdapterResponse(_message="OK", code="OK")


def _listed(names: list[str] | str | None) -> list[str]:
    return [names] if isinstance(names, str) else names or []


def _name_of(node: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(node[key] or "").lower() for key in ("database", "schema", "alias"))


def _kind(row: Mapping[str, Any]) -> HeadraceRelationType:
    if row["is_dynamic"]:
        return HeadraceRelationType.DynamicTable
    return HeadraceRelationType.View if row["is_view"] else HeadraceRelationType.Table
