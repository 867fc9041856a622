"""The messages between a web process and its worker processes.

A worker reads what clients send, so the web process does not trust its answers. An answer is a
pickle that names no classes: the values of known types are numbers of a list and their fields.
Reading it can only build values of these types.
"""

import io
import pickle
import struct
from array import array
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final, cast

from msgspec import Struct

from vinery_serving.core import errors
from vinery_serving.core.errors import ServingError

BEGUN: Final = b"b"  # a worker that has been forked sends this first
# A call: the lengths of a pickle and of the body, then both.
CALL: Final = struct.Struct("!QQ")
# An answer: its kind, whether the worker is of no more use, and the length of its contents.
ANSWER: Final = struct.Struct("!c?Q")
RESULT: Final = b"r"
REFUSAL: Final = b"e"
FAILURE: Final = b"f"
MAX_ANSWER_BYTES: Final = 256 * 2**20
# The end of a worker: its number and its exit status, negative for a signal.
ENDED: Final = struct.Struct("!Ii")

_LONG_TUPLE: Final = 64
_ERRORS: Final = {
    each.__name__: each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, ServingError)
}


class BrokenAnswer(Exception):
    """A worker sent what no worker sends."""


class Codec:
    """Writes and reads results that consist of builtin values and of `types`: dataclasses, structs,
    enums, and classes whose instances have no state. Both ends need the same list."""

    def __init__(self, types: Sequence[type]) -> None:
        self._numbers = {each: number for number, each in enumerate(types)}
        self._readers = [_reader(each) for each in types]
        self._names = {each: _field_names(each) for each in types}

    def dumps(self, value: object) -> bytes:
        """Raises for values of other types."""
        buffer = io.BytesIO()
        pickler = _Pickler(buffer, protocol=5)
        pickler.identify = self._identify
        pickler.dump(value)
        return buffer.getvalue()

    def loads(self, data: bytes) -> Any:
        """Raises `BrokenAnswer`."""
        unpickler = _Unpickler(io.BytesIO(data))
        unpickler.build = self._build
        try:
            return unpickler.load()
        except Exception as error:  # bytes of a hostile worker may cause any
            raise BrokenAnswer(type(error).__name__) from None

    def _identify(self, value: object) -> tuple[object, ...] | None:
        kind = type(value)
        if kind is tuple:
            return _packed_ids(value)  # type: ignore[arg-type]
        number = self._numbers.get(kind)
        if number is None:
            return None
        if isinstance(value, Enum):
            return number, value.value
        return number, *(getattr(value, name) for name in self._names[kind])

    def _build(self, parts: Any) -> object:
        number, *values = parts
        if number == -1:
            return tuple(array("i", values[0]))
        return self._readers[number](*values)


class _Pickler(pickle.Pickler):
    identify: Callable[[object], tuple[object, ...] | None]

    def persistent_id(self, value: object) -> tuple[object, ...] | None:
        return self.identify(value)


class _Unpickler(pickle.Unpickler):
    build: Callable[[Any], object]

    def persistent_load(self, parts: Any) -> object:
        return self.build(parts)

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError("an answer names no classes")


def _packed_ids(values: tuple[object, ...]) -> tuple[object, ...] | None:
    """Long tuples of token ids travel as an array, which is read twenty times as fast."""
    if len(values) < _LONG_TUPLE or not all(type(value) is int for value in values):
        return None
    try:
        return -1, array("i", cast("tuple[int, ...]", values)).tobytes()
    except OverflowError:
        return None


def _field_names(kind: type) -> tuple[str, ...]:
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    return kind.__struct_fields__ if issubclass(kind, Struct) else ()


def _reader(kind: type) -> Callable[..., object]:
    names = _field_names(kind)
    if not is_dataclass(kind):
        return kind
    return lambda *values: kind(**dict(zip(names, values, strict=True)))


def encode_refusal(error: ServingError) -> bytes:
    parts = type(error).__name__, error.template, error.param, error.code, error.type
    return pickle.dumps(parts, protocol=5)


def decode_refusal(data: bytes) -> ServingError:
    """Return the error that a worker raised. Raises `BrokenAnswer`."""
    parts = Codec(()).loads(data)
    try:
        name, message, param, code, type_ = parts
        kind = _ERRORS[name]
    except (TypeError, ValueError, LookupError):
        raise BrokenAnswer("refusal") from None
    error = kind.__new__(kind)
    ServingError.__init__(error, message, param=param, code=code)
    if error.type != type_:
        error.type = type_
    return error
