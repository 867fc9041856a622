"""Two web processes: a page of one stops a request of the other, and both say when rows change."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import httpx
import openai
import psutil
import pytest

from tests.conftest import Running, until
from tests.system.clients import command, openai_of, platform_with
from tests.system.ledger import rows

platform = platform_with(VINERY_WEB_WORKERS="2")

# As long as the context allows, and slow enough for a person.
ENDLESS: Any = {"model": "tiny-chat", "prompt": "Once", "max_tokens": 1900, "n": 16}
ENDLESS |= {"extra_body": {"ignore_eos": True}}
REASON = "This request was stopped by an administrator: It loops."


def process_of(platform: Running, response: httpx.Response) -> int:
    """The web process that has the connection of this response."""
    client = response.extensions["network_stream"].get_extra_info("client_addr")
    return next(
        pid
        for pid in platform.pids("web")
        for each in psutil.Process(pid).net_connections("tcp")
        if each.raddr and tuple(each.raddr) == tuple(client)
    )


def signed_in(platform: Running) -> httpx.Client:
    """A browser with one connection, whose last page is the list of requests."""
    browser = httpx.Client(base_url=platform.base_url, timeout=60, follow_redirects=True)
    browser.get("/accounts/login/")
    form = {"login": platform.admin_user, "password": platform.admin_password}
    browser.post("/accounts/login/", data=with_token(browser, form)).raise_for_status()
    return browser


def with_token(browser: httpx.Client, form: dict[str, str]) -> dict[str, str]:
    return {**form, "csrfmiddlewaretoken": browser.cookies["csrftoken"]}


def test_a_page_of_the_other_process_stops_a_stream_and_the_client_reads_the_reason(
    platform: Running,
) -> None:
    browser = signed_in(platform)
    page_pid = process_of(platform, browser.get("/console/live/"))

    def begun_elsewhere() -> Any:
        stream = openai_of(platform).completions.create(**ENDLESS, stream=True)
        if process_of(platform, stream.response) != page_pid:
            return stream
        stream.close()
        return None

    stream = until(begun_elsewhere, timeout_s=60)
    next(iter(stream))
    request_id = stream.response.headers["x-request-id"]
    assert process_of(platform, browser.get("/console/live/")) == page_pid
    form = with_token(browser, {"reason": "It loops."})
    stopped = browser.post(f"/console/live/{request_id}/stop/", data=form)
    assert "The request is stopped." in stopped.text
    with closing(stream), pytest.raises(openai.APIError, match=REASON) as failed:
        list(stream)

    assert failed.value.code == "stopped"
    row = until(lambda: next((r for r in rows(platform) if r.request_id == request_id), None))
    assert (row.outcome, row.http_status, row.error_code) == ("rejected", 403, "stopped")
    assert row.num_output_tokens > 0 and row.is_exact
    assert request_id not in command(platform, "requests", "live")


@contextmanager
def followed(browser: httpx.Client) -> Iterator[httpx.Response]:
    """A page that has heard of a change, and goes on listening."""
    with browser.stream("GET", "/console/events/") as page:
        lines = page.iter_lines()  # kept: its end is that of the connection
        assert "event: change" in next(lines)
        yield page
        assert lines


def test_streams_of_open_pages_hold_up_no_end_of_their_process(platform: Running) -> None:
    """Neither a replacement nor SIGTERM waits for them. A page goes on with the next process."""
    with closing(signed_in(platform)) as browser, ExitStack() as pages:
        open_pages = [pages.enter_context(followed(browser)) for _ in range(4)]
        former = platform.pids("web")
        assert {process_of(platform, page) for page in open_pages} <= set(former)
        command(platform, "reload")
        until(lambda: not any(map(psutil.pid_exists, former)), timeout_s=60)

        pid = process_of(platform, pages.enter_context(followed(browser)))
        os.kill(pid, signal.SIGTERM)
        until(lambda: not psutil.pid_exists(pid), timeout_s=60)
