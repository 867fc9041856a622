"""All schemas, strict and not, of which `test_steps_of_schemas` has pairs."""

from tests.output.rotation import whole

from . import test_steps_of_schemas as by_day

globals().update(
    whole(
        "name, is_strict",
        [by_day.LINEAR, [False, True]],
        by_day.test_twice_the_size_takes_about_twice_the_steps,
    )
    | whole(
        "name, is_strict",
        [[*by_day.HOSTILE, *by_day.HELD], [False, True]],
        by_day.test_a_hostile_schema_is_translated_or_refused_within_its_budget,
    )
)
