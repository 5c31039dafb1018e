"""Who runs a statement, and what kinds of statement each role may run.

What is not listed here is for administrators. Which tables a statement may touch is another question: grants answer it.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.catalog.records import Role
from headrace.errors import Forbidden
from headrace.sql import statements as sql

__all__ = [
    "LEAST_ROLE",
    "LEAST_ROLE_FOR_VERB",
    "LOCAL_USER",
    "Principal",
    "Role",
    "is_nobody",
    "nobody",
    "require_role",
]

LOCAL_USER = "admin"
"""The first administrator; and whoever comes to a server with the lake's own token, which only its files tell."""

_DROPPED = " (dropped)"


def nobody(name: str) -> str:
    """Whose things are that a dropped user has made. No name of a user: whoever gets theirs later must not have them.

    >>> nobody("ann"), is_nobody(nobody("ann")), is_nobody("ann")
    ('ann (dropped)', True, False)
    """
    return f"{name}{_DROPPED}"


def is_nobody(creator: str) -> bool:
    return creator.endswith(_DROPPED)


@dataclass(frozen=True)
class Principal:
    """Who runs a statement. An embedded lake's user is `unlimited`: whoever can open the files owns them."""

    name: str
    role: Role
    unlimited: bool = False
    by_token: bool = False
    """Whether an API token says so, and not a password: then it makes no tokens and sets no passwords."""

    @property
    def is_admin(self) -> bool:
        return self.unlimited or self.role == "admin"


_RANK: dict[Role, int] = {"analyst": 0, "developer": 1, "operator": 2, "admin": 3}
_PEOPLE: dict[Role, str] = {
    "analyst": "an analyst",
    "developer": "a developer",
    "operator": "an operator",
    "admin": "an administrator",
}

LEAST_ROLE: dict[type[sql.Statement], Role] = {
    **dict.fromkeys(
        (
            sql.AlterUser,  # One's own password; permitting looks whose it is. So with grants, tokens and jobs.
            sql.CancelJob, sql.CreateToken, sql.DescribeHistory, sql.DescribeJob, sql.DescribeStream,
            sql.DescribeTable, sql.DescribeTask, sql.DescribeVcluster, sql.DropToken, sql.ExplainIncremental,
            sql.ExplainRefresh, sql.SetMoveStreams,
            sql.SelectFromShow, sql.SetQueryTag, sql.ShowAlertHistory, sql.ShowAlerts, sql.ShowCreateTable,
            sql.ShowDynamicTables, sql.ShowFreshness, sql.ShowGrants, sql.ShowJobs, sql.ShowRefreshHistory,
            sql.ShowStreams, sql.ShowTables, sql.ShowTaskHistory, sql.ShowTasks, sql.ShowTokens, sql.ShowVclusters,
            sql.UseSchema, sql.UseVcluster, sql.VerifyDynamicTable,
            sql.DropTable,  # One's own temporary view; of a table or view see permitting.
            sql.SparkStatement,  # See the verbs.
        ),
        "analyst",
    ),
    **dict.fromkeys(
        (
            sql.AlterAlert, sql.AlterDynamicTable, sql.AlterStream, sql.AlterTask, sql.CopyInto, sql.CreateAlert,
            sql.CreateDynamicTable, sql.CreateSchema, sql.CreateStream,
            sql.CreateTask,  # One with code of its own needs an operator: permitting looks.
            sql.DropAlert, sql.DropDynamicTable, sql.DropSchema, sql.DropStream, sql.DropTask, sql.ExecuteTask,
            sql.RefreshDynamicTables, sql.RestoreTable, sql.Vacuum,
        ),
        "developer",
    ),
    **dict.fromkeys(
        (
            sql.AlterVcluster, sql.CreateUser, sql.CreateVcluster, sql.DropUser, sql.DropVcluster, sql.GrantPrivilege,
            sql.ShowUsers,
        ),
        "admin",
    ),
}  # fmt: skip

LEAST_ROLE_FOR_VERB: dict[str, Role] = {
    **dict.fromkeys(
        (
            "(", "CREATE FUNCTION", "CREATE TEMPORARY FUNCTION", "CREATE TEMPORARY VIEW", "CREATE VIEW", "DECLARE",
            "DESCRIBE", "DESCRIBE DATABASE", "DESCRIBE DETAIL", "DESCRIBE FUNCTION", "DESCRIBE NAMESPACE",
            "DESCRIBE QUERY", "DESCRIBE SCHEMA", "DROP TEMPORARY", "DROP VARIABLE", "EXPLAIN", "RESET", "SELECT", "SET",
            "SHOW ALL", "SHOW CATALOGS", "SHOW COLUMNS", "SHOW CURRENT", "SHOW DATABASES", "SHOW FUNCTIONS",
            "SHOW NAMESPACES", "SHOW PARTITIONS", "SHOW SCHEMAS", "SHOW SYSTEM", "SHOW TABLE", "SHOW TBLPROPERTIES",
            "SHOW USER", "SHOW VIEWS", "TABLE", "VALUES",
        ),
        "analyst",
    ),
    **dict.fromkeys(
        (
            "ALTER DATABASE", "ALTER NAMESPACE", "ALTER SCHEMA", "ALTER TABLE", "ALTER VIEW", "ANALYZE TABLE",
            "ANALYZE TABLES", "CACHE LAZY", "CACHE TABLE", "COMMENT ON", "CREATE PERMANENT FUNCTION",
            "CREATE PERMANENT VIEW", "CREATE TABLE", "DELETE", "DROP FUNCTION", "INSERT", "MERGE", "OPTIMIZE",
            "REFRESH FUNCTION", "REFRESH TABLE", "REORG TABLE", "REPLACE TABLE", "TRUNCATE", "UNCACHE TABLE", "UPDATE",
        ),
        "developer",
    ),
    "RUN CODE": "operator",  # No statement: what a task with a Python file or a command needs.
}  # fmt: skip
"""By a statement's leading words, as `SparkStatement.verb` has them. CREATE VIEW and CREATE FUNCTION are for everybody
while what they create is temporary; for what stays, permitting asks for the PERMANENT ones."""


def lesser(role: Role, bound: Role | None) -> Role:
    """What is left of a role under a bound."""
    return role if bound is None or _RANK[role] <= _RANK[bound] else bound


def require_role(user: Principal, needed: type[sql.Statement] | str, what: str) -> None:
    """Raise when the user's role may not run this kind of statement; `what` is how people call it."""
    if user.is_admin:
        return
    least: Role = (
        LEAST_ROLE_FOR_VERB.get(needed, "admin") if isinstance(needed, str) else LEAST_ROLE.get(needed, "admin")
    )
    if _RANK[user.role] < _RANK[least]:
        raise Forbidden(
            f"{what} needs {_PEOPLE[least]}, and {user.name} is {_PEOPLE[user.role]}.",
            hint=f"An administrator can run it, or change the role: ALTER USER {user.name} SET ROLE {least}.",
        )
