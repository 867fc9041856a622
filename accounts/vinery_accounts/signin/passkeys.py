"""Passkeys: where browsers make them, and the form of a new one."""

from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from allauth.mfa.webauthn.forms import AddWebAuthnForm
from django import forms
from django.conf import settings
from django.http import HttpRequest

from vinery_accounts.outbound.addresses import read_address

_LOCAL: Final = "localhost"


def _origin_of(request: HttpRequest) -> SplitResult:
    """The origin that browsers see: the public URL, unless the page is open on localhost."""
    own = urlsplit(request.build_absolute_uri("/"))
    public = urlsplit(settings.VINERY_PUBLIC_URL)
    return own if _is_local(own.hostname) or not public.hostname else public


def host_of(request: HttpRequest) -> str:
    """The host that the passkeys of this server belong to."""
    return _origin_of(request).hostname or _LOCAL


def why_none(request: HttpRequest) -> str:
    """Why browsers make no passkey here, and what helps; empty if they do (Web Authentication,
    5.1.3 and "relying party identifier")."""
    origin = _origin_of(request)
    is_secure = origin.scheme == "https" and read_address(origin.hostname or "") is None
    if is_secure or _is_local(origin.hostname):
        return ""
    return (
        "Browsers keep passkeys for names of hosts over https, and for localhost: open this server "
        "by such an address, or ask an administrator for one."
    )


def _is_local(host: str | None) -> bool:
    return host is not None and (host == _LOCAL or host.endswith(f".{_LOCAL}"))


class AddForm(AddWebAuthnForm):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["name"].help_text = "What you recognise it by, such as laptop."
        self.fields["passwordless"] = forms.BooleanField(
            label="Log in with this passkey alone",
            required=False,
            initial=True,
            help_text="The device asks for its PIN, fingerprint or face. Otherwise the passkey is "
            "a second factor, after your password.",
        )
