"""Why a conversion cannot begin, or has failed."""


class ConvertError(Exception):
    """The message is a sentence that names what to change."""
