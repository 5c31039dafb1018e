"""A server on a loopback port that speaks the protocol and has no lake: statements are words with a known answer."""

from __future__ import annotations

import itertools
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from headrace.server.models import LoginRequest, SessionRequest, StatementRequest

PASSWORD = "correct horse"
TOKEN = "hr_api"


@dataclass
class Job:
    id: str
    sql: str
    session: str
    table: pa.Table | None = None
    error: dict[str, Any] | None = None
    status: str = "RUNNING"
    progress: list[str] = field(default_factory=list)
    truncated: bool = False
    ended: threading.Event = field(default_factory=threading.Event)

    def end(self, status: str, error: dict[str, Any] | None = None) -> None:
        self.status, self.error = status, error
        self.ended.set()


@dataclass
class Double:
    """What it was asked, and what it shall do."""

    url: str = ""
    answers: dict[str, Callable[[Job], None]] = field(default_factory=dict)
    timezone: str = "Asia/Tokyo"
    logins: set[str] = field(default_factory=set)
    sessions: dict[str, dict[str, Any]] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    away: int = 0
    """How many of the next GETs are answered with 503."""
    broken_streams: int = 0
    """How many of the next results break off in the middle."""
    held_submits: threading.Event = field(default_factory=threading.Event)
    health: str = "ok"
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def submitted(self) -> list[str]:
        return [job.sql for job in self.jobs.values()]

    def answer(self, sql: str, table: pa.Table, *, truncated: bool = False) -> None:
        def given(job: Job) -> None:
            job.table, job.truncated = table, truncated
            job.end("SUCCEED")

        self.answers[sql] = given

    def fail(self, sql: str, **error: Any) -> None:
        self.answers[sql] = lambda job: job.end("FAILED", {"hint": None, "position": None, **error})


def problem(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    body = {"error": {"code": code, "message": message, "hint": None, "position": None}}
    return JSONResponse(body, status_code=status, headers=headers)


def app_of(double: Double) -> FastAPI:
    app = FastAPI()

    @app.middleware("http")
    async def gate(request: Request, go_on: Any) -> Response:
        path = request.url.path
        double.log.append(f"{request.method} {path}")
        if path in ("/health", "/v1/login"):
            return await go_on(request)  # type: ignore[no-any-return]
        if request.method == "GET" and double.away > 0:
            double.away -= 1
            return problem(503, "ENVIRONMENT", "Spark is being started again.", {"Retry-After": "0"})
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token != TOKEN and token not in double.logins:
            return problem(401, "UNAUTHENTICATED", "You are not logged in.")
        return await go_on(request)  # type: ignore[no-any-return]

    @app.get("/health")
    def health() -> Response:
        return JSONResponse({"status": double.health}, status_code=200 if double.health == "ok" else 503)

    @app.get("/metrics")
    def metrics() -> Response:
        return PlainTextResponse(
            "# TYPE headrace_running_jobs gauge\n"
            'headrace_running_jobs{vcluster="default"} 2.0\nheadrace_running_jobs{vcluster="b"} 1.0\n'
            f'headrace_queued_jobs{{vcluster="default"}} 0.0\nheadrace_sessions {len(double.sessions)}.0\n'
        )

    @app.post("/v1/login")
    def login(body: LoginRequest) -> Any:
        if body.password != PASSWORD:
            return problem(401, "UNAUTHENTICATED", "The username or the password is wrong.")
        token = f"login-{next(double.numbers)}"
        double.logins.add(token)
        return {"token": token, "expires_at": "2030-01-01T00:00:00Z", "username": body.username, "role": "admin"}

    @app.post("/v1/logout")
    def logout(request: Request) -> Any:
        double.logins.discard(request.headers["Authorization"].removeprefix("Bearer "))
        return {}

    @app.post("/v1/sessions", status_code=201)
    def begin(body: SessionRequest) -> Any:
        made = {
            "session_id": f"s{next(double.numbers)}",
            "schema": body.schema_name or "main.public",
            "vcluster": body.vcluster or "default",
            "timezone": double.timezone,
        }
        double.sessions[made["session_id"]] = made
        return made

    @app.get("/v1/sessions/{session_id}")
    def session(session_id: str) -> Any:
        return double.sessions.get(session_id) or problem(404, "NOT_FOUND", "There is no such session of yours.")

    @app.delete("/v1/sessions/{session_id}", status_code=204)
    def end(session_id: str) -> Response:
        double.sessions.pop(session_id, None)
        return Response(status_code=204)

    @app.post("/v1/sessions/{session_id}/statements")
    def submit(session_id: str, body: StatementRequest) -> Any:
        double.held_submits.wait(10)
        if session_id not in double.sessions:
            return problem(404, "NOT_FOUND", "There is no such session of yours.")
        job = Job(f"j{next(double.numbers)}", body.sql, session_id)
        double.jobs[job.id] = job
        double.answers.get(body.sql, _status)(job)
        job.ended.wait(min(body.wait_seconds, 0.05))
        return _told(job)

    @app.get("/v1/statements/{job_id}")
    def statement(job_id: str, wait_seconds: float = 0) -> Any:
        job = double.jobs[job_id]
        job.ended.wait(min(wait_seconds, 0.05) if job.progress else wait_seconds)
        return _told(job)

    @app.get("/v1/statements/{job_id}/arrow")
    def arrow(job_id: str) -> Response:
        table = double.jobs[job_id].table
        assert table is not None
        breaks = double.broken_streams > 0
        double.broken_streams -= 1

        def chunks() -> Iterator[bytes]:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=100)
            content = sink.getvalue().to_pybytes()
            for begin in range(0, len(content), 500):
                if breaks and begin >= 1000:
                    raise ConnectionError("broken on purpose")
                yield content[begin : begin + 500]

        return StreamingResponse(chunks(), media_type="application/vnd.apache.arrow.stream")

    @app.post("/v1/statements/{job_id}/cancel")
    def cancel(job_id: str) -> Any:
        job = double.jobs[job_id]
        job.end("CANCELLED", {"code": "CANCELLED", "message": "The job was cancelled.", "hint": None, "position": None})
        return _told(job)

    @app.get("/v1/names")
    def names() -> Any:
        return {"names": ["orders", "public"]}

    return app


def _status(job: Job) -> None:
    job.table = pa.table({"status": [f"{job.sql.split()[0]}: done."]})
    job.end("SUCCEED")


def _told(job: Job) -> dict[str, Any]:
    text = job.progress.pop(0) if job.progress and job.status == "RUNNING" else None
    columns = [{"name": name, "type": "string"} for name in job.table.column_names] if job.table is not None else None
    return {
        "job_id": job.id,
        "session_id": job.session,
        "status": job.status,
        "sql": job.sql,
        "vcluster": "default",
        "query_tag": None,
        "progress": None if text is None else {"text": text, "fraction": 0.5},
        "phases": {},
        "columns": columns if job.status == "SUCCEED" else None,
        "row_count": None if job.table is None else job.table.num_rows,
        "truncated": job.truncated,
        "error": job.error,
        "start_time": None,
        "end_time": None,
    }


@contextmanager
def serving() -> Iterator[Double]:
    double = Double()
    double.held_submits.set()
    server = uvicorn.Server(uvicorn.Config(app_of(double), log_config=None, loop="asyncio"))
    bound = socket.create_server(("127.0.0.1", 0))
    double.url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield double
    double.held_submits.set()
    for job in double.jobs.values():
        job.ended.set()
    server.should_exit = True
    thread.join(10)
    bound.close()


@contextmanager
def losing_answers(url: str, count: int) -> Iterator[str]:
    """A way to the server on which the answers to the first `count` requests are lost after they were sent on."""
    host, _, port = url.rpartition("//")[2].partition(":")
    listening = socket.create_server(("127.0.0.1", 0))
    left = [count]

    def relay(client: socket.socket) -> None:
        with client, socket.create_connection((host, int(port))) as server:
            loses, left[0] = left[0] > 0, left[0] - 1
            other = {client: server, server: client}
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    words = ready.recv(1 << 20)
                    if not words or (loses and ready is server):
                        return
                    other[ready].sendall(words)

    def accept() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=relay, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    listening.close()
