"""One server per test process, on a free port, over the shared lake."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from headrace import Lake
from headrace.catalog.records import Role
from headrace.server.service import Service
from served import PASSWORD, Client, MakeUser, Server, listening, logged_in

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server(shared_lake: Lake) -> Iterator[Server]:
    service = Service(shared_lake.settings)
    password = service.begin(shared_lake)
    if password is None:  # Another test has left an administrator in the shared lake.
        password = PASSWORD
        shared_lake.sql(f"CREATE USER admin WITH PASSWORD '{PASSWORD}' ROLE admin")
    with listening(service) as url:
        yield Server(url, service, password)


@pytest.fixture
def admin(server: Server) -> Client:
    return server.admin


@pytest.fixture
def make_user(server: Server, admin: Client) -> Iterator[MakeUser]:
    """Makes a user of a role, with statements run by the administrator, and logs in. Gone after the test."""
    session = admin.session()
    made: list[str] = []

    def make(role: Role, *grants: str) -> Client:
        name = f"{role}_{next(_numbers)}"
        made.append(name)
        for sql in (
            f"CREATE USER {name} WITH PASSWORD '{PASSWORD}' ROLE {role}",
            *(f"GRANT {grant} TO {name}" for grant in grants),
        ):
            ended = admin.run(session, sql)
            assert ended["status"] == "SUCCEED", ended["error"]
        return logged_in(server.url, name, PASSWORD)

    yield make
    for name in made:
        admin.run(session, f"DROP USER IF EXISTS {name}")
    admin.http.delete(f"/v1/sessions/{session}")
