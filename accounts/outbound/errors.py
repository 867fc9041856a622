"""Why an outgoing request failed. The messages contain nothing that the other server sent."""


class OutboundError(Exception):
    """Root of the tree. The message is a sentence for the user who gave the URL."""


class AddressRefused(OutboundError):
    """The URL or an address of its host may not be used. Nothing was sent."""


class UrlRefused(AddressRefused):
    """The text is not a URL, or one that different programs read differently."""


class NotReached(OutboundError):
    """The name has no address, or no connection could be made."""


class BadResponse(OutboundError):
    """The server broke the protocol, or ended the connection before the end of the body."""


class TooLarge(OutboundError):
    """The body has more bytes than the caller takes."""
