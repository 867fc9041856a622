"""How a file is refused: errors of the decoding libraries become sentences for the client."""

from collections.abc import Iterator
from contextlib import contextmanager

from vinery_serving.core.errors import InvalidRequest


class Unreadable(Exception):
    """The message is a sentence without its subject, such as "has no pixels"."""


@contextmanager
def refusals(param: str) -> Iterator[None]:
    """Raise `InvalidRequest` with `param` for files that cannot be read."""
    try:
        yield
    except Unreadable as error:
        raise InvalidRequest(f"`{param}` {error}.", param=param) from None
    except MemoryError:
        raise InvalidRequest(
            f"`{param}` needs too much memory to be read. Send a smaller file.", param=param
        ) from None
    except InvalidRequest as error:
        if error.param is None:
            error.param = param
        raise


@contextmanager
def reading(file_type: str) -> Iterator[None]:
    """Raise `Unreadable` for any error of a library: damaged files cause those of all types."""
    try:
        yield
    except (Unreadable, MemoryError):
        raise
    except Exception:
        raise Unreadable(
            f"cannot be read as {file_type}: the file is damaged or incomplete. Save or export it "
            "again, and send the whole file"
        ) from None
