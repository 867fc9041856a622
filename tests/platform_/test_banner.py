"""What the first and later starts print."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from vinery.cli.up import banner, banner_without_secrets, curl_line
from vinery.config.credentials import Credentials

URL = "http://127.0.0.1:8000"
KNOWN = Credentials(URL, "vny_live_k", "admin", "pa55word")
FILE = Path("/srv/vinery/bootstrap.json")


def test_the_first_start_prints_url_password_and_key() -> None:
    text = banner(URL, FILE, KNOWN, "tiny-chat", is_first_start=True)

    for part in (URL, "user admin, password pa55word", "vny_live_k", str(FILE), "curl "):
        assert part in text


def test_a_later_start_does_not_print_the_password() -> None:
    text = banner(URL, FILE, KNOWN, "tiny-chat", is_first_start=False)

    assert "pa55word" not in text
    assert str(FILE) in text


def test_a_log_names_the_file_of_the_credentials_and_has_no_secret() -> None:
    text = banner_without_secrets(URL, FILE, KNOWN)

    assert "pa55word" not in text
    assert "vny_live_k" not in text
    assert f"cat {FILE}" in text
    assert URL in text
    assert "vinery key create" in banner_without_secrets(URL, FILE, None)


def test_without_saved_credentials_the_banner_shows_how_to_create_a_key() -> None:
    text = banner(URL, FILE, None, None, is_first_start=False)

    assert "vinery key create" in text
    assert "curl" not in text


def test_the_curl_line_is_left_out_if_the_key_may_use_no_model() -> None:
    assert "curl" not in banner(URL, FILE, KNOWN, None, is_first_start=False)


def test_the_curl_line_is_quoted_for_the_shell() -> None:
    words = shlex.split(curl_line(URL, "vny_live_k", "it's $HOME"))

    assert words[:2] == ["curl", f"{URL}/v1/chat/completions"]
    assert "Authorization: Bearer vny_live_k" in words
    assert json.loads(words[-1])["model"] == "it's $HOME"
