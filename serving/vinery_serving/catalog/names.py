"""What names of models and of their aliases look like."""

from typing import Final

from django.core.validators import RegexValidator

MODEL_NAME: Final = RegexValidator(
    r"^[A-Za-z0-9][A-Za-z0-9._:/-]*\Z",
    "Use letters, digits and . _ : / - only, beginning with a letter or digit.",
)
ALIAS_NAME: Final = RegexValidator(
    r"^[A-Za-z0-9][A-Za-z0-9._:/-]*\*?\Z",
    "Use letters, digits and . _ : / - only, beginning with a letter or digit. The last character "
    "may be a *, for all names that begin so.",
)
