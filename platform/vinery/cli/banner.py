"""What `vinery up` prints when it is ready: the URL, the credentials, and a command to try."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from vinery.config.credentials import Credentials


def ready(
    base_url: str,
    file: Path,
    known: Credentials | None,
    model: str | None,
    *,
    is_first_start: bool,
) -> str:
    """The lines to print. Only the first start shows the password. `model`: one for the key."""
    lines = ["ready", "", f"  URL       {base_url}", f"  admin     {base_url}/admin/"]
    if known is not None:
        if is_first_start:
            lines.append(f"            user {known.admin_user}, password {known.admin_password}")
        lines += [f"  API key   {known.api_key}", f"  saved in  {file}"]
    if known is not None and model is not None:
        lines += ["", f"  {curl_line(base_url, known.api_key, model)}"]
    else:
        lines += ["", "  To get a key: vinery key create --name NAME"]
    return "\n".join([*lines, ""])


def curl_line(base_url: str, api_key: str, model: str) -> str:
    """A shell command that requests a chat completion."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello!"}]}
    words = (
        *("curl", f"{base_url}/v1/chat/completions"),
        *("-H", f"Authorization: Bearer {api_key}"),
        *("-H", "Content-Type: application/json"),
        *("-d", json.dumps(body)),
    )
    return shlex.join(words)
