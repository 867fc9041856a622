"""What ends a look at a hub, or a pull. The messages are sentences for an administrator."""


class PullFailed(Exception):
    """It does not work, and would not work again. The message names what to change."""


class HubUnavailable(PullFailed):
    """The hub does not answer, or answers that it cannot now. Another attempt may work, after the
    seconds that the hub names; 0: it names none."""

    def __init__(self, message: str, retry_after_s: float = 0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
