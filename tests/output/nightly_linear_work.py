"""Every kind of value in every way to write it, of which `test_linear_work` has some."""

from . import test_linear_work as by_day
from .rotation import whole
from .test_linear_work import work as work

globals().update(
    whole(
        "kind, family",
        [by_day.VALUES, by_day.FAMILIES],
        by_day.test_the_work_grows_with_the_length_of_an_answer,
    )
)
