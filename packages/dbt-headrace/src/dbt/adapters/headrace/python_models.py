"""Python models: their code is sent to the server, which runs it on its Spark."""

from __future__ import annotations

from typing import Any

from dbt.adapters.base.impl import PythonJobHelper


class HeadracePythonJobHelper(PythonJobHelper):
    """The one way there is. The adapter sends the code itself, through the session of the node's thread."""

    def __init__(self, parsed_model: dict[str, Any], credential: Any) -> None:
        self.model = parsed_model

    def submit(self, compiled_code: str) -> Any:
        raise NotImplementedError("The adapter submits Python models through the session of their thread.")
