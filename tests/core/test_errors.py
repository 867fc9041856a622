"""What usage records keep of an error: its sentence and field, without texts of the client."""

from tests.tables import table
from vinery_serving.core.errors import InvalidRequest, ServingError, cited
from vinery_serving.gateway.workers.wire import decode_refusal, encode_refusal
from vinery_serving.media.rules import Denial, DenialReason, MediaDenied

SECRET = "my bank is broke"


@table(
    "error, shown, message, param",
    [
        (
            InvalidRequest(f"`stop[1]` is no word: {cited(SECRET)}.", param="stop[1]"),
            f"`stop[1]` is no word: {SECRET}.",
            "`stop[1]` is no word: ….",
            "stop[1]",
        ),
        (
            InvalidRequest(f'`tools[0]["{SECRET}"].x` must be 1.', param=f'tools[0]["{SECRET}"].x'),
            f'`tools[0]["{SECRET}"].x` must be 1.',
            "`tools[0][…].x` must be 1.",
            "tools[0][…].x",
        ),
        (
            InvalidRequest(f"`metadata.{SECRET}` is bad.", param=f"metadata.{SECRET}"),
            f"`metadata.{SECRET}` is bad.",
            "`metadata.my…` is bad.",
            "metadata.my…",
        ),
        (
            MediaDenied(f"They do not allow {SECRET}.", Denial(DenialReason.ADDRESS, "platform")),
            f"They do not allow {SECRET}.",
            "The media rules do not allow a URL or file of the request.",
            "",
        ),
        (ServingError(cited("\x02a\x03b" * 9000)), None, "…", ""),
        (ServingError("é" * 9000), None, "é" * 500, ""),
    ],
)
def test_a_record_has_no_text_of_the_client(
    error: ServingError, shown: str | None, message: str, param: str
) -> None:
    assert shown is None or error.message == str(error) == shown
    assert "\x02" not in error.message
    assert error.recorded == (message, param)
    if not isinstance(error, MediaDenied):  # workers fetch no media
        assert decode_refusal(encode_refusal(error)).recorded == (message, param)
