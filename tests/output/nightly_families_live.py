"""`test_custom_calls_live` and `test_other_families_live` with all families."""

import pytest

from . import test_custom_calls_live as custom
from . import test_other_families_live as others
from .rotation import whole

pytestmark = pytest.mark.live

globals().update(
    whole("name, mode", custom.MODES, custom.test_an_input_fits_its_regular_expression)
    | whole(
        "name, schema_and_check",
        [others.FAMILIES, others.SCHEMAS],
        others.test_an_argument_fits_its_schema,
    )
)
