"""The parts of the OpenAPI document that drf-spectacular cannot derive by itself."""

from typing import Any, Final

from drf_spectacular.openapi import AutoSchema

_VERBS: Final = {
    "list": "List {many}",
    "retrieve": "Read {one}",
    "create": "Create {one}",
    "partial_update": "Change {one}",
    "destroy": "Remove {one}",
}
_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string", "description": "What to change."},
                "type": {"type": "string"},
                "param": {"type": "string", "nullable": True},
                "code": {"type": "string", "nullable": True},
            },
        }
    },
}


class Schema(AutoSchema):
    def get_tags(self) -> list[str]:
        return [self.path.strip("/").split("/")[1]]

    def get_summary(self) -> str | None:
        verb = _VERBS.get(self._name)
        if self._resource and verb:
            return verb.format(one=self._resource.one, many=self._resource.many)
        return self._help.split(". ")[0].strip(" .") or None

    def get_description(self) -> str:  # type: ignore[override]
        about = (type(self.view).__doc__ or "").strip()
        return f"{self._help}\n\n{about}".replace("    ", "")

    def get_override_parameters(self) -> list[Any]:
        if self._name == "list":
            return [self._resource.filters]
        return list(getattr(self.view, "query", {}).get(self._name, ()))

    def get_request_serializer(self) -> Any:
        return self._resource.body_of(self._name) if self._resource else None

    def get_response_serializers(self) -> Any:
        answer = super().get_response_serializers()
        actions = self._resource.actions if self._resource else ()
        status = {each.name: each.status for each in actions}.get(self._name)
        return {status: None if status == 204 else answer} if status else answer

    @property
    def _resource(self) -> Any:
        return getattr(self.view, "resource", None)

    @property
    def _name(self) -> str:
        return getattr(self.view, "action", None) or str(self.method).lower()

    @property
    def _help(self) -> str:
        verb = {"partial_update": "change", "destroy": "remove"}.get(self._name, self._name)
        text = getattr(self.view, self._name).__doc__ or ""
        return str(self._resource.help.get(verb, text)) if self._resource else text


def complete(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the schema of errors to every operation, and a description to every id in a path. Bodies
    have no other members than their schemas."""
    schemas = result["components"].setdefault("schemas", {})
    for name, schema in schemas.items():
        if name.endswith("Request"):
            schema["additionalProperties"] = False
    schemas["Error"] = _ERROR
    error = {"$ref": "#/components/schemas/Error"}
    for path in result["paths"].values():
        for operation in path.values():
            operation["responses"]["default"] = {
                "description": "An error in the format of OpenAI.",
                "content": {"application/json": {"schema": error}},
            }
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path":
                    parameter["description"] = "Its id."
    return result
