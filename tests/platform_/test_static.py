"""Static files are sent whole, and not again to a browser that has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from pytest_django import Settings

from vinery.web.middleware import StaticFilesMiddleware

BODY = b"body { color: green }"
URL = "/static/site.css"


@pytest.fixture
def files(settings: Settings, tmp_path: Path) -> StaticFilesMiddleware:
    (tmp_path / "site.css").write_bytes(BODY)
    settings.STATIC_ROOT = tmp_path

    def otherwise(_: HttpRequest) -> HttpResponse:
        return HttpResponse("a view")

    return StaticFilesMiddleware(otherwise)


def test_a_whole_file_is_sent(files: StaticFilesMiddleware, rf: RequestFactory) -> None:
    response = files(rf.get(URL))

    assert (response.status_code, response.content) == (200, BODY)
    assert response["Content-Type"] == 'text/css; charset="utf-8"'
    assert response["Content-Length"] == str(len(BODY))
    assert not response.streaming


def test_a_file_that_the_browser_has_is_not_sent(
    files: StaticFilesMiddleware, rf: RequestFactory
) -> None:
    etag = files(rf.get(URL))["ETag"]

    response = files(rf.get(URL, headers={"if-none-match": etag}))

    assert (response.status_code, response.content) == (304, b"")


def test_a_range_of_a_file_is_sent(files: StaticFilesMiddleware, rf: RequestFactory) -> None:
    response = files(rf.get(URL, headers={"range": "bytes=0-3"}))

    assert (response.status_code, response.content) == (206, b"body")


def test_a_long_range_is_answered_with_the_whole_file(
    files: StaticFilesMiddleware, rf: RequestFactory, tmp_path: Path
) -> None:
    long = bytes(100_000)
    (tmp_path / "long.css").write_bytes(long)
    files.add_files(str(tmp_path), prefix="static/")

    response = files(rf.get("/static/long.css", headers={"range": "bytes=1-90000"}))

    assert (response.status_code, response.content) == (200, long)


def test_answers_share_one_copy_of_a_file(files: StaticFilesMiddleware, rf: RequestFactory) -> None:
    assert files(rf.get(URL)).content is files(rf.get(URL)).content


def test_head_returns_only_the_length(files: StaticFilesMiddleware, rf: RequestFactory) -> None:
    response = files(rf.head(URL))

    assert (response.status_code, response.content) == (200, b"")
    assert response["Content-Length"] == str(len(BODY))


def test_files_are_read_only(files: StaticFilesMiddleware, rf: RequestFactory) -> None:
    assert files(rf.post(URL)).status_code == 405


def test_other_paths_are_for_the_views(files: StaticFilesMiddleware, rf: RequestFactory) -> None:
    assert files(rf.get("/static/../secret")).content == b"a view"
    assert files(rf.get("/v1/models")).content == b"a view"
