"""A lake behind a server: the same statements, the same results, the same errors."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import pyarrow as pa

from headrace.client.errors import from_body
from headrace.client.http import Http, trusting
from headrace.errors import HeadraceError, NotAllowed, NotFound, ServiceFault, SessionReset, UserError
from headrace.interrupts import interrupts_deferred
from headrace.names import quote
from headrace.progress import Progress, ProgressEvent
from headrace.result import Result, done
from headrace.sql.split import split_statements

_ENDED = ("SUCCEED", "FAILED", "CANCELLED")
# A quick statement is answered with the request that submits it. Longer than this Ctrl-C must not wait.
_FIRST_WAIT = 1
_WATCHED_WAIT = 1
_UNWATCHED_WAIT = 30
_SHORTEST_ROUND = 0.05


class ResultCut(UserWarning):
    """The server gave only the first rows of a result."""


class RemoteResult(Result):
    """A result that came from a server."""

    def __init__(self, table: pa.Table, *, zone: str, job_id: str, truncated: bool) -> None:
        super().__init__(table, zone=zone, truncated=truncated)
        self.job_id = job_id


def connect(
    url: str,
    *,
    username: str | None = None,
    password: str | None = None,
    token: str | None = None,
    schema: str | None = None,
    vcluster: str | None = None,
    ca_file: str | Path | None = None,
) -> RemoteLake:
    """Connect to a server, with a username and password or with a token, and begin a session there."""
    http = Http(url, username=username, password=password, token=token, trust=trusting(ca_file))
    return RemoteLake(http, schema=schema, vcluster=vcluster)


class RemoteLake:
    """One session on a server: its schema, settings and temporary views are its own. Use it as a context manager, or
    call `close()`."""

    def __init__(self, http: Http, *, schema: str | None = None, vcluster: str | None = None) -> None:
        self._http = http
        self._wanted = {key: value for key, value in (("schema", schema), ("vcluster", vcluster)) if value is not None}
        self._progress = Progress()
        self._watched = False
        self._running: set[str] = set()
        self._session_lock = threading.Lock()
        self._closed = False
        self.vcluster: str | None = None
        try:
            self._begin_session()
        except BaseException:
            http.close()
            raise

    @property
    def url(self) -> str:
        return self._http.url

    @property
    def acting(self) -> str | None:
        """As whom statements run there, in words: a user's name, a token's user, or the lake's owner."""
        return self._http.acting

    @property
    def spark(self) -> NoReturn:
        raise NotAllowed(
            "A lake behind a server has no Spark session here: Spark runs in the server.",
            hint="Use sql(), or headrace.session.Session with this address as its service.",
        )

    def sql(self, text: str) -> Result:
        """Run one or more statements separated by `;` and give the last one's result."""
        results = list(self.statements(text))
        return results[-1] if results else done("There was no statement.")

    def statements(self, text: str) -> Iterator[Result]:
        """Run the statements one by one, giving each one's result."""
        self._require_open()
        for part in split_statements(text):
            try:
                yield self.run("statements", {"sql": part.text})
            except HeadraceError as error:
                if error.position is not None:
                    error.position = part.in_script(error.position)
                raise

    def names(self) -> list[str]:
        """Schemas and tables, for completion."""
        self._require_open()
        names = self._http.get("/v1/names").get("names")
        return [str(name) for name in names] if isinstance(names, list) else []

    def on_progress(self, listener: Callable[[ProgressEvent], None]) -> None:
        """Call `listener` with every step of long work that the server tells."""
        self._watched = True
        self._progress.listen(listener)

    def use_vcluster(self, name: str) -> None:
        """Have this session run on a virtual cluster, and each one that takes its place."""
        self.sql(f"USE VCLUSTER {quote(name)}")
        self._wanted["vcluster"] = name
        self.vcluster = name

    def cancel(self) -> None:
        """Cancel what runs through this lake, from whichever thread. The statement then ends with `Cancelled`."""
        for job_id in tuple(self._running):
            self._cancel(job_id)

    def ping(self) -> None:
        """Raise when the session is gone or the server cannot be reached."""
        self._require_open()
        self._http.get(f"/v1/sessions/{self.session_id}")

    def close(self) -> None:
        """End the session. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            self._http.delete(f"/v1/sessions/{self.session_id}")
        except HeadraceError:
            pass  # A server that is gone has ended the session, and one that cannot be reached will.
        finally:
            self._http.close()

    # ------------------------------------------------------------------ one statement

    def run(self, kind: str, body: dict[str, Any]) -> Result:
        """Have the session do what the body says, as one of its `statements` or `frames`, and wait for the result."""
        self._require_open()
        statement = self._submit(kind, body)
        job_id = str(statement["job_id"])
        self._running.add(job_id)
        try:
            statement = self._ended(statement)
        except KeyboardInterrupt:
            self._cancel(job_id)
            raise
        finally:
            self._running.discard(job_id)
        return self._result(statement)

    def _submit(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        """Hand it over, once. An interrupt waits until we know how to cancel it."""
        session_id = self.session_id
        with interrupts_deferred() as interrupted:
            try:
                statement = self._http.post(
                    f"/v1/sessions/{session_id}/{kind}",
                    {**body, "wait_seconds": _FIRST_WAIT},
                    wait_seconds=_FIRST_WAIT,
                )
            except NotFound:
                self._require_session(session_id)
                raise
        _require_statement(statement)
        if interrupted.is_set():
            if statement["status"] not in _ENDED:
                self._cancel(str(statement["job_id"]))
            raise KeyboardInterrupt
        return statement

    def _ended(self, statement: dict[str, Any]) -> dict[str, Any]:
        """Wait for the end, telling how far it is."""
        told: ProgressEvent | None = None
        while statement["status"] not in _ENDED:
            event = _progress_of(statement)
            if event is not None and event != told:
                self._progress.tell(event.text, event.fraction)
                told = event
            began = time.monotonic()
            wait = _WATCHED_WAIT if self._watched else _UNWATCHED_WAIT
            statement = self._http.get(f"/v1/statements/{statement['job_id']}", wait_seconds=wait)
            _require_statement(statement)
            if statement["status"] not in _ENDED:
                # A server that answers at once, such as one that is stopping, is not asked in a tight circle.
                time.sleep(max(0.0, _SHORTEST_ROUND - (time.monotonic() - began)))
        return statement

    def _result(self, statement: dict[str, Any]) -> Result:
        job_id, truncated = str(statement["job_id"]), statement.get("truncated") is True
        if statement["status"] != "SUCCEED":
            raise from_body(statement.get("error"))
        table = self._http.arrow(f"/v1/statements/{job_id}/arrow", statement.get("row_count"))
        if truncated:
            warnings.warn(
                f"The result has more rows than the server gives: these are the first {table.num_rows:,}. "
                "Its settings result_rows_max and result_bytes_max say how many.",
                ResultCut,
                stacklevel=4,
            )
        return RemoteResult(table, zone=self.timezone, job_id=job_id, truncated=truncated)

    def _cancel(self, job_id: str) -> None:
        try:
            self._http.post(f"/v1/statements/{job_id}/cancel")
        except HeadraceError:
            pass  # It has ended meanwhile, or the server is gone, and the job with it.

    # ------------------------------------------------------------------ the session

    def _begin_session(self) -> None:
        told = self._http.post("/v1/sessions", self._wanted)
        if not isinstance(told.get("session_id"), str):
            raise ServiceFault("What answered is not a Headrace server.", hint="Check the address of the service.")
        self.session_id: str = told["session_id"]
        self.schema: str | None = told.get("schema")
        self.vcluster = told.get("vcluster")
        self.timezone: str = told.get("timezone") or "UTC"

    def _require_session(self, session_id: str) -> None:
        """Told once when the server has ended the session: the next statement finds a new one."""
        try:
            self._http.get(f"/v1/sessions/{session_id}")
        except NotFound:
            with self._session_lock:
                if self.session_id == session_id:
                    self._begin_session()
            raise SessionReset(
                "The server has ended this session: its current schema, settings and temporary views are gone.",
                hint="The statement was not run. Set what it needs, then run it again: a new session has begun.",
            ) from None

    def _require_open(self) -> None:
        if self._closed:
            raise UserError("This lake is closed.", hint="Connect again: headrace.connect(url).")

    def __enter__(self) -> RemoteLake:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteLake at {self.url}>"


def _require_statement(told: Any) -> None:
    if not isinstance(told.get("job_id"), str) or not isinstance(told.get("status"), str):
        raise ServiceFault("What answered is not a Headrace server.", hint="Check the address of the service.")


def _progress_of(statement: dict[str, Any]) -> ProgressEvent | None:
    told = statement.get("progress")
    if isinstance(told, dict) and isinstance(told.get("text"), str):
        return ProgressEvent(told["text"], told.get("fraction"))
    cluster = statement.get("vcluster") or "its virtual cluster"
    if statement["status"] == "QUEUED":
        return ProgressEvent(f"Waiting in the queue of {cluster}")
    if statement["status"] == "RESUMING_CLUSTER":
        return ProgressEvent(f"Resuming {cluster}")
    return None
