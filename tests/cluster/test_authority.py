"""Certificates are renewed in time, for the same key, and secret keys can be replaced."""

import ssl
from datetime import UTC, datetime, timedelta

from tests.cluster.hosts import AUTHORITY, NODE_HOST, WEB_HOST
from vinery_serving.cluster.authority import Certificates, Role, host_fingerprint
from vinery_serving.transport.relayed import fingerprint_of


def shown_by(server: Certificates, client: Certificates) -> bytes:
    """The certificate that a client gets from a server. Raises ssl.SSLError."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.context().wrap_bio(back, there),
        server.context().wrap_bio(there, back, server_side=True),
    ]
    while ends:
        for end in tuple(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)
            if not end.server_side:
                found = end.getpeercert(binary_form=True)
    assert found
    return found


def test_a_certificate_is_renewed_after_60_days_for_the_same_key() -> None:
    now = datetime.now(UTC)
    times = [now - timedelta(days=60), now - timedelta(hours=1), now]
    server = Certificates([AUTHORITY], NODE_HOST, Role.NODE, lambda: times[0])
    client = Certificates([AUTHORITY], WEB_HOST, Role.WEB)
    context, first = server.context(), shown_by(server, client)
    del times[0]
    assert shown_by(server, client) == first
    del times[0]
    renewed = shown_by(server, client)
    assert renewed != first
    assert server.context() is context  # which a listening socket has
    assert fingerprint_of(renewed) == fingerprint_of(first) == host_fingerprint(NODE_HOST)


def test_a_new_secret_key_is_believed_where_it_is_a_fallback() -> None:
    new = b"the next secret key"
    server = Certificates([AUTHORITY, new], NODE_HOST, Role.NODE)
    client = Certificates([new, AUTHORITY], WEB_HOST, Role.WEB)
    assert fingerprint_of(shown_by(server, client)) == host_fingerprint(NODE_HOST)
