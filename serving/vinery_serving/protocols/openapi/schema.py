"""JSON schemas of the wire models.

The members of a union differ in their role or type, which the models leave to the union's tags:
`<role=tool>` and `<nested type=custom>` name it, and members with other tags differ by themselves.
The schemas leave out members that exist only to refuse a value.
"""

from collections.abc import Iterable
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from vinery_serving.core.tasks import Endpoint
from vinery_serving.protocols.common.encoding import Answer
from vinery_serving.protocols.common.foreign import FOREIGN
from vinery_serving.protocols.common.refused import REFUSED

Schema = dict[str, Any]
PREFIX: Final = "#/components/schemas/"

# The tags of members that exist only to refuse a value.
_NEVER: Final = ("<unknown>", "<other>")


class _Generator(GenerateJsonSchema):
    """Leaves out titles and defaults: a title repeats the name, and a default is null."""

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        members = [
            self._member(str(tag), choice)
            for tag, choice in schema["choices"].items()
            if tag not in _NEVER
        ]
        return {"anyOf": members}

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        """Later versions may add members to answers."""
        found = super().typed_dict_schema(schema)
        found.pop("additionalProperties", None)
        return found

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def _member(self, tag: str, choice: CoreSchema) -> JsonSchemaValue:
        inner = self.generate_inner(choice)
        mark, is_marked, value = tag.strip("<>").rpartition(" ")[2].partition("=")
        if not is_marked:
            return inner
        return {"allOf": [inner], "properties": {mark: {"const": value}}, "required": [mark]}


def component_schemas(models: Iterable[type[BaseModel | Answer]]) -> dict[str, Schema]:
    """Return the schemas of `models` and of the models in them, by name."""
    _, definitions = TypeAdapter.json_schemas(
        [(model, "validation", TypeAdapter(model)) for model in models],
        ref_template=PREFIX + "{model}",
        schema_generator=_Generator,
    )
    schemas: dict[str, Schema] = definitions["$defs"]
    for schema in schemas.values():
        schema.pop("title", None)
        _join_lines(schema)
    return schemas


def add_refused(schema: Schema, endpoint: Endpoint) -> None:
    """Add the refused parameters of `endpoint` to the schema of its body, with the reasons."""
    for name, refused in REFUSED[endpoint].items():
        message = refused.message(name)
        schema["properties"][name] = {
            "enum": [None, *refused.harmless],
            "description": f"Refused. {message}",
            "x-refused": message,
        }


def add_foreign(schema: Schema) -> None:
    """Add the parameters of other servers that are no fields of this body, with what becomes of
    them."""
    schema["x-foreign"] = {
        each.name: ": ".join(each.outcome)
        for each in FOREIGN
        if each.name not in schema["properties"]
    }


def _join_lines(schema: Any) -> None:
    """Descriptions from docstrings have the line breaks of the code."""
    if isinstance(schema, dict):
        if isinstance(schema.get("description"), str):
            schema["description"] = " ".join(schema["description"].split())
        for each in schema.values():
            _join_lines(each)
    elif isinstance(schema, list):
        for each in schema:
            _join_lines(each)
