"""Reports through a real SMTP server, with STARTTLS and a password: what it refuses or misses is
said, a report is tried again, and nothing is sent twice."""

import asyncio
import re
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from pages import page, signed_in
from test_mailed_views import HOUR, MONDAY, saved, used_at

from tests.outbound.servers import certificate
from vinery_accounts import mailed_views
from vinery_accounts.models import User
from vinery_platform.config.servers import mail_server_from_env

pytestmark = pytest.mark.django_db


class Inbox:
    """The mails of a server, which gives `answer` to each."""

    answer = "250 OK"

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        if self.answer.startswith("250"):
            self.mails.append(message_from_bytes(envelope.content, policy=policy.default))  # type: ignore[arg-type]
        return self.answer


def check(_server: Any, _session: Any, _envelope: Any, _mechanism: str, given: Any) -> AuthResult:
    is_right = given == LoginPassword(b"vinery", b"right")
    return AuthResult(success=is_right, handled=False)


class Server(Controller):
    def _trigger_server(self) -> None:
        """The port is known once the server listens."""
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    tls, _ = certificate(tmp_path, "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))
    more = {"require_starttls": True, "auth_required": True, "authenticator": check}
    server = Server(Inbox(), "127.0.0.1", 0, tls_context=tls, **more)
    server.start()
    yield server
    server.stop(no_assert=True)


@pytest.fixture
def inbox(server: Server) -> Inbox:
    return server.handler  # type: ignore[no-any-return]


@pytest.fixture
def uses(server: Server, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let Django send through the server, with this password."""

    def use(password: str) -> None:
        url = f"smtp://vinery:{password}@127.0.0.1:{server.port}"
        monkeypatch.setenv("VINERY_EMAIL_URL", url)
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        for name, value in mail_server_from_env().items():
            setattr(settings, name, value)
        settings.VINERY_HAS_EMAIL = settings.VINERY_PASSWORD_RESET = True

    use("right")
    return use


def test_a_report_arrives_once_after_all_that_refuses_it(
    alice: User, server: Server, inbox: Inbox, uses: Any
) -> None:
    used_at(alice, "r1", MONDAY - HOUR, model="tiny-chat")
    view, client = saved(alice, "by=model"), signed_in(alice)

    def is_refused(hours: int) -> str:
        mailed_views.mail(view.pk, MONDAY + hours * HOUR)
        assert mailed_views.due_ids(MONDAY + (hours + 1) * HOUR) == [view.pk]
        found = re.search(r"refused or is away \((\w+)\)", page(client, "/console/usage/"))
        assert found is not None
        return found[1]

    uses("wrong")
    assert is_refused(2) == "SMTPAuthenticationError"
    uses("right")
    inbox.answer = "451 Try again later"
    assert is_refused(3) == "SMTPDataError"
    server.stop()
    assert is_refused(4) == "ConnectionRefusedError"
    server.loop = asyncio.new_event_loop()
    server.start()
    inbox.answer = "250 OK"
    for hours in (5, 6):
        mailed_views.mail(view.pk, MONDAY + hours * HOUR)
        assert mailed_views.due_ids(MONDAY + 7 * HOUR) == []

    (mail,) = inbox.mails
    assert mail["To"] == "her@example.com"
    (sheet,) = mail.iter_attachments()
    assert (sheet.get_filename(), sheet.get_content_type()) == ("usage-by-model.csv", "text/csv")
    assert "tiny-chat" in sheet.get_content()
    assert "refused or is away" not in page(client, "/console/usage/")
