"""No value that a client chooses makes rendering fail with anything but an invalid request."""

import json

from tests.tables import table
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.field_limits import JSON_CONTAINERS, JSON_LEVELS

from .builders import MODEL, a_calling_chat, a_chat, rendered

TINY = (MODEL / "chat_template.jinja").read_text()
NAMES = [
    *("self", "loop", "context", "environment", "caller", "varargs", "kwargs", "super", "range"),
    *("namespace", "raise_exception", "strftime_now", "missing", "undefined", "", "a b", "None"),
    *("message", "tool", "template", "variables", "name", "args", "cls", "__class__", "blocks"),
    *("documents", "enable_thinking", "add_generation_prompt"),
]


@table("name", NAMES)
@table("value", [1, None, "a", [], {}])
def test_a_variable_may_have_any_name(name, value):
    try:
        text = rendered(TINY, a_chat(("user", "Hi"), template_kwargs={name: value}))
    except InvalidRequest as error:
        assert error.param == "messages"
        assert name not in ("self", "loop")
    else:
        assert "Hi" in text
        assert name not in ("self", "loop") or text == rendered(TINY, a_chat(("user", "Hi")))


@table(
    "text",
    [
        *(
            '{"a":' + begin * num_levels + "1" + end * num_levels + "}"
            for num_levels in (JSON_LEVELS.value, 990, 5_000, 50_000)
            for begin, end in (("[", "]"), ('{"a":', "}"))
        ),
        '{"a":[' + "[]," * JSON_CONTAINERS.value + "[]]}",
    ],
)
def test_arguments_that_nest_deeply_or_have_many_values_stay_text(text):
    assert json.dumps({"INVALID_JSON": text}) in rendered(TINY, a_calling_chat(text))
