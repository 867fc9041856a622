"""Why a conversion cannot begin, or has failed."""


class ConvertError(Exception):
    """The message is a sentence that names what to change. `option` is the option whose value is
    wrong; empty: the checkpoint is, or several are."""

    def __init__(self, message: str, option: str = "") -> None:
        super().__init__(message)
        self.option = option
