"""Whether the server can work."""

from __future__ import annotations

from fastapi import APIRouter, Response

from headrace.server.models import Health
from headrace.server.problems import RETRY_SECONDS, declared
from headrace.server.routes import TheService

router = APIRouter(tags=["operation"])


@router.get(
    "/health",
    summary="Ask whether the server can work",
    response_model=Health,
    responses={**declared(400, 413), 503: {"model": Health, "description": "It starts, stops, or Spark is away"}},
)
async def health(service: TheService, response: Response) -> Health:
    """Says `ok`, or with 503 `starting` or `degraded`, to everybody."""
    status = service.health()
    if status != "ok":
        response.status_code = 503
        response.headers["Retry-After"] = str(RETRY_SECONDS)
    return Health(status=status)
