"""The API's description for people: Swagger's own pages, from files of this machine."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response

router = APIRouter(include_in_schema=False)

_ASSETS = {
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
    "favicon-32x32.png": "image/png",
}
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Headrace API</title>
<link rel="stylesheet" href="/docs/swagger-ui.css">
<link rel="icon" href="/docs/favicon-32x32.png">
</head>
<body>
<div id="api"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
# A file of its own: the policy of these pages allows no script inside a page.
_START = """SwaggerUIBundle({
  url: "/docs/openapi.json",
  dom_id: "#api",
  deepLinking: true,
  validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis],
});
"""


@router.get("/")
async def entrance() -> Response:
    return RedirectResponse("/docs")


@router.get("/docs")
async def page() -> Response:
    return HTMLResponse(_PAGE)


@router.get("/docs/start.js")
async def start() -> Response:
    return Response(_START, media_type="text/javascript")


@router.get("/docs/openapi.json")
async def description(request: Request) -> Response:
    return JSONResponse(for_viewer(request.app.openapi()))


@router.get("/docs/{name}")
async def asset(name: str) -> Response:
    if name not in _ASSETS:
        raise HTTPException(404)
    return FileResponse(_folder() / name, media_type=_ASSETS[name])


def for_viewer(description: dict[str, Any]) -> dict[str, Any]:
    """The same in OpenAPI 3.0, which is what the viewer knows. There, a value that may be null is written otherwise,
    and so is the example of a body: without one the viewer makes bodies up from the patterns of their fields."""
    older: dict[str, Any] = {**_older(description), "openapi": "3.0.3"}
    schemas = description.get("components", {}).get("schemas", {})
    for operations in older.get("paths", {}).values():
        for operation in operations.values():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                example = _example(content["schema"], schemas)
                if example is not None:
                    content["example"] = example
    return older


def _example(schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """The first example of the model that a body's schema names."""
    for part in (schema, *schema.get("allOf", ())):
        name = part.get("$ref", "").rpartition("/")[2]
        for example in schemas.get(name, {}).get("examples", ()):
            return example
    return None


def _older(part: Any) -> Any:
    if isinstance(part, list):
        return [_older(item) for item in part]
    if not isinstance(part, dict):
        return part
    older = {key: _older(value) for key, value in part.items()}
    choices = older.get("anyOf")
    if isinstance(choices, list) and {"type": "null"} in choices:
        rest = [choice for choice in choices if choice != {"type": "null"}]
        del older["anyOf"]
        older |= {"nullable": True, **({"allOf": rest} if len(rest) == 1 else {"anyOf": rest})}
    return older


@cache
def _folder() -> Path:
    return Path(str(importlib.import_module("swagger_ui_bundle").swagger_ui_path))
