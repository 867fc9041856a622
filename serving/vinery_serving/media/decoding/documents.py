"""Renders the pages of a PDF with PDFium, and reads their text.

Scripts, forms and links are not run: PDFium is built without JavaScript, and no form environment is
opened. PDFium fetches nothing.
"""

import math
from typing import Final

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from vinery_serving.core.media import MediaKind, Page, Picture
from vinery_serving.media.decoding import DecodeLimits, Fit, Unreadable, check_type, fitted, reading

_PDF: Final = "PDF"
_MAX_POINTS: Final = 1e6  # of a side
_MAX_CHARS: Final = 200_000  # of a page
# PDFium's mark for a hyphen at the end of a line, and other values that are no characters.
_NO_CHARACTERS: Final = dict.fromkeys((0, 0xFFFE, 0xFFFF)) | {2: "-"}


def read_document(data: bytes, limits: DecodeLimits, fit: Fit) -> tuple[Page, ...]:
    """Raises `Unreadable`, and what `fit` raises."""
    check_type(data, MediaKind.DOCUMENT, limits.max_bytes)
    document = _opened(data)
    try:
        num_pages = len(document)
        if not num_pages:
            raise Unreadable("is a PDF without pages")
        if num_pages > limits.max_pages:
            raise Unreadable(
                f"is a PDF of {num_pages} pages, and at most {limits.max_pages} are read. Send the "
                "pages that matter"
            )
        return tuple(_page(document, index, limits, fit) for index in range(num_pages))
    finally:
        document.close()


def _opened(data: bytes) -> pdfium.PdfDocument:
    with reading(_PDF):
        try:
            return pdfium.PdfDocument(data)
        except pdfium.PdfiumError as error:
            if getattr(error, "err_code", None) == pdfium_c.FPDF_ERR_PASSWORD:
                raise Unreadable("is encrypted. Remove the password of the PDF") from None
            raise


def _page(document: pdfium.PdfDocument, index: int, limits: DecodeLimits, fit: Fit) -> Page:
    with reading(_PDF):
        page = document[index]
        size = _size(page, limits.max_pixels)
    width, height = fitted(fit, size)
    with reading(_PDF):
        return Page(_text(page, index), Picture(height, width, _rendered(page, width, height)))


def _size(page: pdfium.PdfPage, max_pixels: int) -> tuple[int, int]:
    """Return width and height in pixels, of which `fit` makes the size that is rendered: 144 an
    inch, or fewer if these were too many."""
    width, height = page.get_size()
    if not (0 < width < _MAX_POINTS and 0 < height < _MAX_POINTS):
        raise Unreadable("is a PDF with a page that has no size")
    scale = min(2.0, math.sqrt(max_pixels / (width * height)))
    return max(int(scale * width), 1), max(int(scale * height), 1)


def _rendered(page: pdfium.PdfPage, width: int, height: int) -> bytes:
    """Return uint8 RGB, (height, width, 3), on white."""
    bitmap = pdfium.PdfBitmap.new_native(
        width, height, pdfium_c.FPDFBitmap_BGRx, rev_byteorder=True
    )
    bitmap.fill_rect((255, 255, 255, 255), 0, 0, width, height)
    flags = pdfium_c.FPDF_ANNOT | pdfium_c.FPDF_REVERSE_BYTE_ORDER
    pdfium_c.FPDF_RenderPageBitmap(bitmap, page, 0, 0, width, height, 0, flags)
    pixels: bytes = bitmap.to_numpy()[:, :, :3].tobytes()
    return pixels


def _text(page: pdfium.PdfPage, index: int) -> str:
    text_page = page.get_textpage()
    num_chars = text_page.count_chars()
    if num_chars > _MAX_CHARS:
        raise Unreadable(
            f"has {num_chars} characters on page {index + 1}, and at most {_MAX_CHARS} are read. "
            "Send the text that matters"
        )
    text: str = text_page.get_text_bounded(errors="replace")
    return text.replace("\r\n", "\n").translate(_NO_CHARACTERS)
