"""PDFs are decoded to pictures of pages, and to text."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.media import drawing
from tests.media.pdfs import QUADRANTS as DRAWN
from tests.media.pdfs import pages, pdf, stream, words
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import Page
from vinery_serving.media.decoding import decode_document

_to_page_size = drawing.to_size(96, 64)


def decoded(data: bytes, fit: Any = _to_page_size, **limits: Any) -> tuple[Page, ...]:
    return decode_document(data, replace(drawing.LIMITS, **limits), fit, drawing.PARAM)


def test_each_page_is_a_picture_with_its_text() -> None:
    data = pdf(pages([DRAWN, words(b"Merlot, 1998"), b""]))

    first, second, third = decoded(data)

    drawing.assert_shows(first.picture)
    assert (first.picture.width, first.picture.height, first.text) == (96, 64, "")
    assert second.text == "Merlot, 1998"
    assert set(second.picture.pixels) != {255}, "the words are drawn"
    drawing.assert_shows(third.picture, (drawing.WHITE,) * 4)


def test_the_model_chooses_the_size_of_a_page_from_that_at_144_pixels_an_inch() -> None:
    asked = []

    def fit(width: int, height: int) -> tuple[int, int]:
        asked.append((width, height))
        return width // 4, height // 4

    (page,) = decoded(pdf(pages([DRAWN])), fit)
    decoded(pdf(pages([DRAWN])), fit, max_pixels=96 * 64)

    assert asked == [(192, 128), (96, 64)], "a lower resolution where the limit demands it"
    drawing.assert_shows(page.picture)
    assert (page.picture.width, page.picture.height) == (48, 32)


def test_a_document_reads_no_file_and_runs_no_script(tmp_path: Path) -> None:
    target = tmp_path / "secret.txt"
    target.write_text("the secret")
    objects = pages([DRAWN])
    objects[1] = (
        b"<< /Type /Catalog /Pages 2 0 R /OpenAction << /S /JavaScript /JS (app.alert(1)) >> "
        b"/AA << /WC << /S /Launch /F (%s) >> >> >>" % str(target).encode()
    )
    objects[5] = stream(DRAWN, b"/F (%s)" % str(target).encode())

    (page,) = decoded(pdf(objects))

    assert page.text == ""
    drawing.assert_shows(page.picture)


def test_what_is_no_short_readable_document_is_refused_with_the_way_out() -> None:
    data = pdf(pages([b""] * 5))
    assert len(decoded(data, max_pages=5)) == 5
    with pytest.raises(InvalidRequest, match="is a PDF of 5 pages, and at most 4 are read") as info:
        decoded(data, max_pages=4)
    assert info.value.param == drawing.PARAM

    encryption = (
        b"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O (%s) /U (%s) >> /ID [<00> <00>]"
        % (b"o" * 32, b"u" * 32)
    )
    with pytest.raises(InvalidRequest, match=r"is encrypted\. Remove the password"):
        decoded(pdf(pages([DRAWN]), encryption))

    many = b"".join(words(b"a" * 10_000) for _ in range(21))
    with pytest.raises(InvalidRequest, match="characters on page 2, and at most 200000 are read"):
        decoded(pdf(pages([b"", many])))

    with pytest.raises(InvalidRequest, match=r"is a picture \(PNG\), but was sent as a document"):
        decoded(drawing.saved(drawing.quadrants(), "PNG"))
