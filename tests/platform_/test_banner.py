"""What the first and later starts print."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from vinery.cli.banner import curl_line, ready
from vinery.config.credentials import Credentials

URL = "http://127.0.0.1:8000"
KNOWN = Credentials(URL, "vny_live_k", "admin", "pa55word")
FILE = Path("/srv/vinery/bootstrap.json")


def test_the_first_start_reports_everything() -> None:
    text = ready(URL, FILE, KNOWN, "tiny-chat", is_first_start=True)

    for part in (URL, "user admin, password pa55word", "vny_live_k", str(FILE), "curl "):
        assert part in text


def test_a_later_start_keeps_the_password_to_itself() -> None:
    text = ready(URL, FILE, KNOWN, "tiny-chat", is_first_start=False)

    assert "pa55word" not in text
    assert str(FILE) in text


def test_without_saved_credentials_it_reports_how_to_make_a_key() -> None:
    text = ready(URL, FILE, None, None, is_first_start=False)

    assert "vinery key create" in text
    assert "curl" not in text


def test_a_key_that_may_use_nothing_gets_no_curl_line() -> None:
    assert "curl" not in ready(URL, FILE, KNOWN, None, is_first_start=False)


def test_the_curl_line_survives_the_shell() -> None:
    words = shlex.split(curl_line(URL, "vny_live_k", "it's $HOME"))

    assert words[:2] == ["curl", f"{URL}/v1/chat/completions"]
    assert "Authorization: Bearer vny_live_k" in words
    assert json.loads(words[-1])["model"] == "it's $HOME"
