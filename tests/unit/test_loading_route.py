"""Rows over HTTP: whatever comes in, the answer is an acknowledgement or an error that says what is wrong."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pyarrow as pa
import pytest

from headrace.errors import Forbidden, NotAllowed, NotFound
from headrace.loading.receiving import Form, Receipt
from headrace.names import parse_parts
from headrace.security.roles import Principal
from headrace.server.routes import rows
from served import PlainLake, listening, plain_service
from unit.loading_double import LoadingLake, lines

JSON = {"Content-Type": rows.JSON_LINES}
ARROW = {"Content-Type": rows.ARROW}


@dataclass
class Served:
    http: httpx.Client
    loading: LoadingLake
    lake: PlainLake

    def post(self, body: bytes | str, batch_id: str | None = None, **more: Any) -> httpx.Response:
        parameters = {} if batch_id is None else {"batch_id": batch_id}
        more = {"headers": JSON, "params": parameters, **more}
        return self.http.post("/v1/tables/events/rows", content=body, **more)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("rows")
    (folder / "loading").mkdir()
    loading = LoadingLake(folder / "loading", most_bytes=200 * 1024**2)

    def require_loadable(user: Principal, name: str) -> None:
        if parse_parts(name)[-1] == "forbidden":
            raise Forbidden(f"{user.name} may not change {name}.")

    def load_rows(user: Principal, name: str, body: bytes, form: Form, batch_id: str | None) -> Receipt:
        parts = parse_parts(name)
        if parts[-1] == "dynamic":
            raise NotAllowed(f"{name} is a dynamic table: a batch of rows cannot write it.")
        if parts[-1] != "events":
            raise NotFound(f"There is no table {name}.")
        return loading.send(body, batch_id, form)

    with plain_service(folder) as (service, lake, password):
        lake.load_rows = load_rows  # type: ignore[attr-defined]
        lake.require_loadable = require_loadable  # type: ignore[attr-defined]
        with listening(service) as url:
            http = httpx.Client(base_url=url, trust_env=False, timeout=60)
            token = http.post("/v1/login", json={"username": "admin", "password": password}).json()["token"]
            http.headers["Authorization"] = f"Bearer {token}"
            yield Served(http, loading, lake)
    loading.close()


def test_a_batch_is_acknowledged_once(served: Served) -> None:
    body = lines(0, 3) + '\n{"id": "x"}'
    answer = served.post(body, "first")
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"batch_id": "first", "accepted": 3, "rejected": 1, "state": "RECEIVED", "duplicate": False}
    differs = served.post("whatever", "first")
    assert (differs.status_code, differs.json()["error"]["code"]) == (409, "BATCH_DIFFERS")
    again = served.post(body, "first").json()
    assert again == {"batch_id": "first", "accepted": 3, "rejected": 1, "state": "RECEIVED", "duplicate": True}
    served.loading.look(61)
    assert served.post(body, "first").json()["state"] == "COMMITTED"
    assert served.loading.rows()[:3] == [0, 1, 2]
    unnamed = served.post(lines(5, 6)).json()
    assert unnamed["batch_id"]
    assert not unnamed["duplicate"]


def test_an_arrow_batch(served: Served) -> None:
    table = pa.table({"id": [1, 2], "kind": ["a", "b"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    answer = served.post(sink.getvalue().to_pybytes(), "arrow", headers=ARROW)
    assert answer.json()["accepted"] == 2, answer.text


def test_names(served: Served) -> None:
    for name in ("events", "public.events", "main.public.events", "`events`", "main.`public`.events"):
        answer = served.http.post(f"/v1/tables/{name}/rows", content=lines(0, 1), headers=JSON)
        assert answer.status_code == 200, (name, answer.text)
    for name, status in (
        ("missing", 404), ("a.b.c.d", 400), ("a b", 400), ("..", 404), ("`", 400), ("x" * 2000, 422),
        ("forbidden", 403), ("dynamic", 400), ("%00", 400), ("%FF", 400), ("a;DROP TABLE b", 400),
    ):  # fmt: skip
        answer = served.http.post(f"/v1/tables/{name}/rows", content=lines(0, 1), headers=JSON)
        assert answer.status_code == status, (name, answer.status_code, answer.text)
        assert answer.json()["error"]["message"]
    refused = [entry for entry in served.lake.store.users.audited(100) if entry.action == "REFUSED"]
    assert refused[0].detail == "refused: rows for forbidden"


def test_who_may_not_is_told_before_the_body_is_taken(served: Served) -> None:
    """The head alone is sent: whoever waits for the body would wait for a minute."""
    url = served.http.base_url
    for name, status in (("forbidden", b" 403 "), ("events", None)):
        head = (
            f"POST /v1/tables/{name}/rows HTTP/1.1\r\nHost: {url.host}\r\nContent-Type: {rows.JSON_LINES}\r\n"
            f"Authorization: {served.http.headers['Authorization']}\r\nContent-Length: 30000000\r\n\r\n"
        )
        with socket.create_connection((url.host, url.port), timeout=10) as client:
            client.sendall(head.encode())
            if status is not None:
                assert status in client.recv(4096)
                continue
            client.settimeout(1)
            with pytest.raises(TimeoutError):
                client.recv(4096)
    (refused, *_) = [entry for entry in served.lake.store.users.audited(100) if entry.action == "REFUSED"]
    assert refused.detail == "refused: rows for forbidden"


def test_batch_ids(served: Served) -> None:
    for batch_id in ("", "a\0b", "x" * 256, "a\nb"):
        answer = served.post(lines(0, 1), batch_id)
        assert answer.status_code == 422, (batch_id, answer.text)
    assert served.post(lines(0, 1), "ü/☃ ?&=").json()["batch_id"] == "ü/☃ ?&="


def test_content_types(served: Served) -> None:
    for headers in ({}, {"Content-Type": "application/json"}, {"Content-Type": "text/csv"}, {"Content-Type": "; ;"}):
        answer = served.http.post("/v1/tables/events/rows", content=lines(0, 1), headers=headers)
        assert answer.status_code == 422, answer.text
        assert rows.JSON_LINES in answer.json()["error"]["message"]
    assert served.post(lines(0, 1), headers={**JSON, "Content-Encoding": "gzip"}).status_code == 422
    kind = f"{rows.JSON_LINES.upper()}; charset=utf-8"
    assert served.post(lines(0, 1), headers={"Content-Type": kind}).status_code == 200


BODIES: dict[str, bytes] = {
    "empty": b"",
    "blank": b"\n\n \r\n",
    "truncated": b'{"id": 1, "kin',
    "no object": b"[1, 2]",
    "a number": b"1",
    "null": b"null",
    "wrong type": b'{"id": "x"}',
    "beyond the type": b'{"id": 9223372036854775808}',
    "a huge number": b'{"id": ' + b"9" * 1_000_000 + b"}",
    "a huge exponent": b'{"id": 1e999999999999}',
    "NaN": b'{"id": NaN}',
    "nested": b'{"id": ' + b"[" * 500_000 + b"]" * 500_000 + b"}",
    "nested objects": b'{"id":' * 200_000,
    "no UTF-8": b'{"id": 1, "kind": "\xff\xfe"}',
    "UTF-16": '{"id": 1}'.encode("utf-16"),
    "duplicate keys": b'{"id": 1, "id": 2}',
    "duplicate columns": b'{"id": 1, "ID": 2}',
    "a surrogate": b'{"id": 1, "kind": "\\ud800"}',
    "a NUL": b'{"id": 1, "kind": "\0"}',
    "an escaped NUL": b'{"id": 1, "kind": "\\u0000"}',
    "a long line": b'{"id": 1, "kind": "' + b"x" * 10_000_000 + b'"}',
    "unknown column": b'{"id": 1, "password": "x"}',
    "only NULs": b"\0" * 1000,
    "many brackets": b"{" * 1000 + b"\n" + b"}" * 1000,
    "a BOM": b'\xef\xbb\xbf{"id": 1}',
    "a decimal": b'{"id": 1, "amount": 1.999}',
}


@pytest.mark.parametrize("name", BODIES)
def test_no_5xx_for_any_json(served: Served, name: str) -> None:
    body = BODIES[name]
    answer = served.post(body)
    assert answer.status_code in (200, 400, 413), (name, answer.status_code, answer.text[:500])
    if answer.status_code == 200:
        found = answer.json()
        assert found["accepted"] + found["rejected"] >= 1, found
    else:
        error = answer.json()["error"]
        assert error["code"] not in ("BUG", "ERROR")
        assert error["message"]
        assert len(answer.text) < 2000


@pytest.mark.parametrize(
    "body", [b"", b"garbage", b"\xff\xff\xff\xff\0\0\0\0", b"ARROW1\0\0", b'{"id": 1}', b"\0" * 10_000]
)
def test_no_5xx_for_any_arrow(served: Served, body: bytes) -> None:
    answer = served.post(body, headers=ARROW)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] == "BAD_BATCH"


def test_limits(served: Served) -> None:
    answer = served.post(b'{"id":1}\n' * 100_001)
    assert answer.status_code == 413, answer.text
    assert answer.json()["error"]["code"] == "TOO_LARGE"
    assert served.post(b"x" * (rows.BODY_LIMIT + 1)).status_code == 413


def test_too_much_waits(served: Served) -> None:
    served.loading.look(61)
    table = served.loading.table
    with served.loading.loader.receiver._backlog.room(_table_id(table), 199 * 1024**2):
        answer = served.post(b'{"id": 1, "kind": "' + b"x" * 2_000_000 + b'"}')
    assert answer.status_code == 429, answer.text
    assert int(answer.headers["Retry-After"]) > 1


def _table_id(path: str) -> str:
    from deltalake import DeltaTable

    return str(DeltaTable(path).metadata().id)


def test_who_is_not_logged_in(served: Served) -> None:
    answer = httpx.post(
        str(served.http.base_url.join("/v1/tables/events/rows")), content=lines(0, 1), headers=JSON, trust_env=False
    )
    assert answer.status_code == 401


def test_the_description(served: Served) -> None:
    described = served.http.get("/openapi.json").json()["paths"]["/v1/tables/{name}/rows"]["post"]
    assert set(described["requestBody"]["content"]) == {rows.JSON_LINES, rows.ARROW}
    assert {parameter["name"] for parameter in described["parameters"]} == {"name", "batch_id"}
