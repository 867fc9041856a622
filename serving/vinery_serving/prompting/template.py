"""Renders chat templates as Hugging Face does, because models were trained on that text.

The environment is the same: sandboxed Jinja2 with `trim_blocks`, `lstrip_blocks`, loop controls,
`raise_exception`, `strftime_now`, a `tojson` that is plain `json.dumps`, and a `{% generation %}`
block without effect. `from_json` is OpenVINO Model Server's, for templates that were repaired for
servers. Nothing is computed while a template is compiled.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn, Self

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import pass_context

from vinery_serving.core.errors import InvalidRequest, cited
from vinery_serving.core.json_text import exceeded_limit
from vinery_serving.prompting import budget
from vinery_serving.prompting.folder import UnusableFolder

_MAX_ERROR_CHARS = 1000  # An error may quote what the client sent


class TemplateRefusal(jinja2.TemplateError):
    """The template called `raise_exception`."""


@dataclass(frozen=True, slots=True)
class TemplateWords:
    """The variables that a template reads, and the strings in its code."""

    variables: frozenset[str]
    constants: frozenset[str]

    @classmethod
    def of(cls, text: str) -> Self:
        """May take any time. Raises `UnusableFolder`."""
        try:
            tree = _environment(datetime.now).parse(text)
            values = (constant.value for constant in tree.find_all(nodes.Const))
            constants = frozenset(value for value in values if isinstance(value, str))
            # Last, because the search folds constants.
            return cls(frozenset(meta.find_undeclared_variables(tree)), constants)
        except (jinja2.TemplateSyntaxError, RecursionError) as error:
            raise _not_compiled(error) from error


class ChatTemplate:
    """One compiled template. Safe to use from several threads."""

    def __init__(
        self,
        text: str,
        named_tokens: Mapping[str, str] | None = None,
        *,
        now: Callable[[], datetime] = datetime.now,
        words: TemplateWords | None = None,
        is_frugal: bool = False,
    ) -> None:
        """Raises `UnusableFolder` when the template does not compile. Without `words` they are
        searched. A rendering of a frugal template may raise `OverBudget`."""
        self.text = text
        self._named_tokens = dict(named_tokens or {})
        kind = budget.FrugalEnvironment if is_frugal else ImmutableSandboxedEnvironment
        self._template = None
        try:
            if not is_frugal or len(text) <= budget.MAX_TEMPLATE_CHARS:
                self._template = _environment(now, kind).from_string(text)
        except (jinja2.TemplateSyntaxError, RecursionError) as error:
            if not is_frugal:
                raise _not_compiled(error) from error
        self.words = words or TemplateWords.of(text)

    def render(self, /, **variables: Any) -> str:
        """Return the text. Raises `InvalidRequest`, with the message that the template raised, if
        any. A variable may have any name, also `self`."""
        if self._template is None:
            raise budget.OverBudget
        budget.fill_purse()
        try:
            return self._template.render({**self._named_tokens, **variables})
        except TemplateRefusal as error:
            raise InvalidRequest(cited(str(error)[:_MAX_ERROR_CHARS]), param="messages") from error
        except (MemoryError, budget.OverBudget):
            raise
        except Exception as error:
            # A template is code that the client gives values to: any exception is possible.
            raise InvalidRequest(
                "The model's chat template cannot render these messages: "
                f"{cited(str(error)[:_MAX_ERROR_CHARS])}.",
                param="messages",
            ) from error


class _Generation(Extension):
    """Renders the body of `{% generation %}`. As in Hugging Face's extension, which calls the body
    as a macro, names that are set inside are not visible outside."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=lineno)


def _not_compiled(error: jinja2.TemplateSyntaxError | RecursionError) -> UnusableFolder:
    if isinstance(error, RecursionError):
        return UnusableFolder("The chat template does not compile: it is nested too deeply.")
    return UnusableFolder(
        f"The chat template does not compile: {error.message} (line {error.lineno})."
    )


def _environment(
    now: Callable[[], datetime],
    kind: type[ImmutableSandboxedEnvironment] = ImmutableSandboxedEnvironment,
) -> ImmutableSandboxedEnvironment:
    environment = kind(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, loopcontrols],
        optimized=False,
        finalize=pass_context(lambda _, value: value),  # a function of the context is not folded
    )
    environment.filters["tojson"] = _to_json
    environment.filters["from_json"] = _from_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: now().strftime(form)
    if isinstance(environment, budget.FrugalEnvironment):
        environment.seal()
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - the signature that templates call
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _from_json(value: Any) -> Any:
    """Return the value of JSON text; other values unchanged, since arguments of calls may be
    objects already. Raises `TemplateRefusal`."""
    if not isinstance(value, str):
        return value
    exceeded = exceeded_limit(value.encode(errors="replace"))
    if exceeded is not None:
        raise TemplateRefusal(f"JSON text must have at most {exceeded.value} {exceeded.counted}.")
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise TemplateRefusal(f"The chat template reads text that is not JSON: {error}.") from error


def _refuse(message: str) -> NoReturn:
    raise TemplateRefusal(message)
