"""Where webhooks may be sent: to the public internet over TLS.

Other addresses, such as databases and a cloud's metadata service, need the administrator's
permission (`VINERY_WEBHOOK_NETWORKS`). `vinery_accounts.outbound` reads the URL, resolves its host
and connects to a checked address.
"""

from django.conf import settings

from vinery_accounts.outbound.addresses import (
    AddressRefused,
    is_within,
    read_address,
    why_not_public,
)
from vinery_accounts.outbound.urls import Url, UrlRefused, read_url


def check_url(url: str) -> Url:
    """The URL of a webhook, without a DNS query. Raises `AddressRefused`."""
    if not url.isascii():
        raise AddressRefused("Write the URL in ASCII, without spaces.")
    try:
        target = read_url(url)
    except UrlRefused as error:
        raise AddressRefused(str(error)) from None
    if not target.is_tls and not settings.VINERY_WEBHOOK_NETWORKS:
        raise AddressRefused("Use https://: without TLS, others can read and change what is sent.")
    if read_address(target.host) is not None:
        check_address(target.host, is_tls=target.is_tls)
    return target


def check_address(address: str, *, is_tls: bool) -> None:
    """Raises `AddressRefused` for an address that a webhook may not be sent to."""
    if is_within(address, settings.VINERY_WEBHOOK_NETWORKS):
        return
    if not is_tls:
        raise AddressRefused(
            "Use https://: the administrator has not allowed http:// to this address."
        )
    if why_not_public(address, allows_translated=True) is not None:
        raise AddressRefused(
            "This address is not public, and the administrator has not allowed it."
        )
