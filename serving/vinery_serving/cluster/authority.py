"""The authority of an installation, and the certificates with which its hosts know each other.

The key of the authority is derived from the secret key of the installation, which each host has: so
each host signs its own certificates, nothing is stored or sent, and a new secret key is a new
authority. The key of a host never leaves its home. A certificate alone opens nothing: the
fingerprint of the host's key must also be in the directory of hosts.

A role is the purpose of a certificate, which TLS itself checks: a web process connects, and does
not answer; a node answers, and does not connect.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID: Final = timedelta(days=90)
_RENEWED_AFTER: Final = timedelta(days=60)
# The clocks of hosts differ.
_VALID_BEFORE: Final = timedelta(days=1)
# All hosts derive the same certificate of the authority, so its times are fixed.
_BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)
_END: Final = datetime(2126, 1, 1, tzinfo=UTC)


class Role(StrEnum):
    WEB = "web"
    NODE = "node"


_PURPOSES: Final = {
    Role.WEB: ExtendedKeyUsageOID.CLIENT_AUTH,
    Role.NODE: ExtendedKeyUsageOID.SERVER_AUTH,
}


def host_fingerprint(host_key: str) -> str:
    """Of a host with this key, as `relayed.fingerprint_of` finds it in certificates."""
    public = _key(host_key.encode()).public_key()
    spki = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()


class Certificates:
    """What a process of a host shows to other hosts, and whom it believes."""

    def __init__(
        self,
        authorities: Sequence[bytes],
        host_key: str,
        role: Role,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`authorities`: secrets from which the keys of the authority are derived. The first signs;
        the others are believed, too. `host_key`: a secret of this host alone."""
        self._signer = _key(authorities[0])
        self._key = _key(host_key.encode())
        self._role = role
        self._clock = clock
        self._signed_at = _BEGINNING
        is_server = role is Role.NODE
        protocol = ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT
        self._context = ssl.SSLContext(protocol)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._context.check_hostname = False  # the fingerprint is checked instead
        # A host that joins has no certificate yet, see `joining`.
        self._context.verify_mode = ssl.CERT_OPTIONAL if is_server else ssl.CERT_REQUIRED
        if is_server:
            self._context.num_tickets = 0  # a resumed session would not show its certificate again
        for secret in authorities:
            certificate = _of_authority(_key(secret))
            self._context.load_verify_locations(cadata=certificate.decode())

    def context(self) -> ssl.SSLContext:
        """The same context each time, with a certificate that is at most 60 days old."""
        now = self._clock()
        if now >= self._signed_at + _RENEWED_AFTER:
            key = self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            self._load(key + self._sign(now))
            self._signed_at = now
        return self._context

    def _sign(self, now: datetime) -> bytes:
        builder = _certificate(self._signer, f"Vinery {self._role}", self._key)
        certificate = (
            builder.serial_number(x509.random_serial_number())
            .not_valid_before(now - _VALID_BEFORE)
            .not_valid_after(now + _VALID)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([_PURPOSES[self._role]]), critical=True)
            .sign(self._signer, None)
        )
        return certificate.public_bytes(Encoding.PEM)

    def _load(self, chain: bytes) -> None:
        """Python reads certificates from files only: one of this user, for a moment."""
        with tempfile.NamedTemporaryFile() as file:
            file.write(chain)
            file.flush()
            self._context.load_cert_chain(file.name)


def _key(secret: bytes) -> Ed25519PrivateKey:
    seed = hmac.digest(secret, b"vinery certificates", "sha256")
    return Ed25519PrivateKey.from_private_bytes(seed)


def _certificate(
    signer: Ed25519PrivateKey, name: str, key: Ed25519PrivateKey
) -> x509.CertificateBuilder:
    own = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    assert own.key_identifier is not None
    return (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(_named(f"Vinery {own.key_identifier.hex()}"))
        .public_key(key.public_key())
        .add_extension(own, critical=False)
    )


def _of_authority(key: Ed25519PrivateKey) -> bytes:
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _certificate(key, f"Vinery {identifier.digest.hex()}", key)
        .serial_number(1)
        .not_valid_before(_BEGINNING)
        .not_valid_after(_END)
        .add_extension(identifier, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, None)
    )
    return certificate.public_bytes(Encoding.PEM)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
