"""Static files of a web process. Clients behind proxies: tests/system/test_variants.py"""

import gzip
from pathlib import Path

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from pytest_django import Settings

from vinery_platform.web.middleware import StaticFilesMiddleware

BODY = b"body { color: green }"
URL = "/static/site.css"


@pytest.fixture
def files(settings: Settings, tmp_path: Path) -> StaticFilesMiddleware:
    (tmp_path / "site.css").write_bytes(BODY)
    settings.STATIC_ROOT = tmp_path

    def otherwise(_: HttpRequest) -> HttpResponse:
        return HttpResponse("a view")

    return StaticFilesMiddleware(otherwise)


def test_a_file_is_sent_whole_and_once(files: StaticFilesMiddleware, rf: RequestFactory) -> None:
    response = files(rf.get(URL))
    assert (response.status_code, response.content) == (200, BODY)
    assert response["Content-Type"] == 'text/css; charset="utf-8"'
    assert response["Content-Length"] == str(len(BODY))
    assert not response.streaming
    assert files(rf.get(URL)).content is response.content, "answers share one copy"
    head = files(rf.head(URL))
    assert (head.status_code, head.content, head["Content-Length"]) == (200, b"", str(len(BODY)))

    zipped = files(rf.get(URL, headers={"accept-encoding": "gzip"}))
    assert (gzip.decompress(zipped.content), zipped["Content-Encoding"]) == (BODY, "gzip")
    assert zipped["Content-Length"] == str(len(zipped.content))
    assert "Accept-Encoding" in zipped["Vary"]

    etag = files(rf.get(URL))["ETag"]

    response = files(rf.get(URL, headers={"if-none-match": etag}))
    assert (response.status_code, response.content) == (304, b"")


def test_a_range_is_the_whole_file_and_other_methods_and_paths_are_not_served(
    files: StaticFilesMiddleware, rf: RequestFactory
) -> None:
    whole = files(rf.get(URL, headers={"range": "bytes=0-3"}))
    assert (whole.status_code, whole.content) == (200, BODY)
    assert files(rf.post(URL)).status_code == 405
    assert files(rf.get("/static/../secret")).content == b"a view"
    assert files(rf.get("/v1/models")).content == b"a view"
