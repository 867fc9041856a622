"""How a host joins an installation: a token of an administrator, and one exchange over TLS.

The token has the fingerprint of the host that made it. So the new host knows to whom it speaks
before it sends the token, and a host in between learns nothing. The token also has a code by which
the relay drops tokens that nobody has made, without a look into the database.
"""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import secrets
import ssl
import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from vinery_serving.transport import relayed
from vinery_serving.transport.relayed import Join
from vinery_serving.transport.sockets import pack

VALID_S: Final = 900
MAX_ANSWER_S: Final = 30.0
_MAX_ANSWER_BYTES: Final = 1 << 16
_LENGTH_BYTES: Final = 4
_PREFIX: Final = "vnyhost_"
_HEAD: Final = struct.Struct(">I16s32s")  # Unix time of its end, random bytes, fingerprint


class Refused(Exception):
    """The message is for who wants the host to join."""


class Admission(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a host. With an error it has nothing else."""

    error: str = ""
    secrets: dict[str, str] = {}  # by the names of files
    settings: dict[str, str] = {}  # by the keys of vinery.toml


NO_SUCH_TOKEN: Final = Admission(
    "The token has been used, or is older than 15 minutes. Make a new one: vinery host token"
)


def new_token(authority: bytes, fingerprint: str, now_s: float) -> str:
    """`authority`: a secret of the installation. `fingerprint`: of the host that will answer."""
    random = secrets.token_bytes(16)
    head = _HEAD.pack(int(now_s) + VALID_S, random, bytes.fromhex(fingerprint))
    return _PREFIX + base64.urlsafe_b64encode(head + _code(authority, head)).decode()


def is_genuine(token: str, authorities: Sequence[bytes], now_s: float) -> bool:
    """Whether the installation has made the token, and its time has not ended."""
    try:
        head, code = _parts(token)
    except Refused:
        return False
    codes = [_code(each, head) for each in authorities]
    is_known = any([hmac.compare_digest(code, each) for each in codes])  # noqa: C419
    return is_known and bool(_HEAD.unpack(head)[0] >= now_s)


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


async def ask(host: str, port: int, wish: Join) -> Admission:
    """Ask the host that has made the token of `wish`. Raises `Refused` or OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # The fingerprint in the token is checked instead: the authority is not known here yet.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    expected = _HEAD.unpack(_parts(wish.token)[0])[2].hex()
    async with asyncio.timeout(MAX_ANSWER_S + relayed.CONNECT_S):
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
        try:
            if relayed.peer_fingerprint(writer.transport) != expected:
                raise Refused("Another host answers there than the one that has made the token.")
            writer.write(pack(wish))
            length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES))
            if length > _MAX_ANSWER_BYTES:
                raise Refused("What answers there is no Vinery of this version.")
            answer = msgspec.msgpack.decode(await reader.readexactly(length), type=Admission)
        except (EOFError, msgspec.MsgspecError) as error:
            raise Refused("The host has closed the connection. Try again later.") from error
        finally:
            with contextlib.suppress(OSError):
                writer.close()
    if answer.error:
        raise Refused(answer.error)
    return answer


def _parts(token: str) -> tuple[bytes, bytes]:
    """The head and its code. Raises `Refused`."""
    try:
        decoded = base64.b64decode(token.removeprefix(_PREFIX), b"-_", validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if not token.startswith(_PREFIX) or len(decoded) != _HEAD.size + hashlib.sha256().digest_size:
        raise Refused("This is no token of `vinery host token`.")
    return decoded[: _HEAD.size], decoded[_HEAD.size :]


def _code(authority: bytes, head: bytes) -> bytes:
    return hmac.digest(authority, b"join" + head, "sha256")
