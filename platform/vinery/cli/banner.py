"""What `vinery up` says when it is ready: where it is, who may enter, and one line to try."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from vinery.credentials import Credentials
from vinery.readiness import first_model


def ready(base_url: str, known: Credentials | None, file: Path, *, is_first_start: bool) -> str:
    """The lines to print. Asks the server for a model's name, so it blocks for a moment."""
    lines = ["", "Vinery is ready.", "", f"  URL       {base_url}"]
    lines.append(f"  console   {base_url}/console/")
    if known is None:
        return "\n".join([*lines, "", "  Make a key: vinery key create --name NAME", ""])
    if is_first_start:
        lines.append(f"  admin     {known.admin_user}, password {known.admin_password}")
    lines.append(f"  API key   {known.api_key}")
    lines.append(f"  saved in  {file}")
    model = first_model(base_url, known.api_key)
    if model is None:
        trial = "No model for this key. Make a new key: vinery key create --name NAME"
    else:
        trial = curl_line(base_url, known.api_key, model)
    return "\n".join([*lines, "", f"  {trial}", ""])


def curl_line(base_url: str, api_key: str, model: str) -> str:
    """A chat completion that can be pasted into a shell."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello!"}]}
    words = (
        *("curl", f"{base_url}/v1/chat/completions"),
        *("-H", f"Authorization: Bearer {api_key}"),
        *("-H", "Content-Type: application/json"),
        *("-d", json.dumps(body)),
    )
    return shlex.join(words)
