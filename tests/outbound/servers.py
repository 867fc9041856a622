"""Real servers on this machine that send exactly the bytes of a test."""

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(
    body: bytes = b"picture",
    *,
    status: str = "200 OK",
    headers: tuple[str, ...] = ("content-type: image/png",),
    length: int | None = None,
) -> bytes:
    lines = (
        f"HTTP/1.1 {status}",
        *headers,
        "connection: close",  # as the server does
        f"content-length: {len(body) if length is None else length}",
    )
    return "\r\n".join((*lines, "", "")).encode() + body


def redirect(location: str | bytes, status: str = "302 Found") -> bytes:
    raw = location if isinstance(location, bytes) else location.encode()
    head = b"HTTP/1.1 %s\r\nlocation: %s\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    return head % (status.encode(), raw)


@dataclass
class Server:
    """Sends the answer of the path, else `answer`, and keeps what it received."""

    port: int = 0
    answer: bytes | Answer = field(default_factory=answer)
    answers: dict[str, bytes | Answer] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    num_connections: int = 0
    server_names: list[str | None] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            path = first.split(" ")[1]
            self.requests.append((path, headers))
            sent = self.answers.get(path, self.answer)
            if isinstance(sent, bytes):
                writer.write(sent)
                await writer.drain()
            else:
                await sent(writer)
        with suppress(OSError):
            writer.close()


@asynccontextmanager
async def serving(
    host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    server = Server()
    if tls is not None:
        tls.sni_callback = lambda _, name, __: server.server_names.append(name)
    running = await asyncio.start_server(server.serve, host, 0, ssl=tls)
    server.port = running.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        running.close()


def certificate(folder: Path, *names: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts of a server with a certificate for these names, and of a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([_name(each) for each in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(signed.public_bytes(serialization.Encoding.PEM) + private)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    return server, ssl.create_default_context(cafile=str(path))


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)
