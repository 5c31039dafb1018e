"""Numbers for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from headrace.server.problems import PROTECTED, declared
from headrace.server.routes import TheCaller, TheService, protected

router = APIRouter(tags=["operation"], dependencies=protected)


@router.get(
    "/metrics",
    summary="Read the numbers for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **declared(*PROTECTED)},
)
async def metrics(service: TheService, caller: TheCaller) -> Response:
    """Gives the server's counters and gauges in Prometheus' text format, to any login; those with names of
    tables to administrators only."""
    told = await service.off_loop(lambda: service.metrics.text(caller.principal))
    return Response(told, media_type=CONTENT_TYPE_LATEST)
