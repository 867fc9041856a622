"""Runs chat templates within a budget of steps and characters, where no process may be killed.

A template may do only what has a known cost: loops, macros, and the filters, tests and methods
below. Each pays for the values it reads and writes, a loop for each round as much as its body is
long. Anything else, or a higher price, raises `OverBudget`: a worker process has limits of its own.
"""

import threading
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Final, NoReturn

from jinja2 import Undefined, nodes
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.utils import Namespace, pass_context
from jinja2.visitor import NodeTransformer
from markupsafe import Markup


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


MAX_TEMPLATE_CHARS: Final = 20_000
# A step takes about 0.1 microseconds. The longest templates need 2,000 for a message.
_MAX_STEPS: Final = 200_000
_CALL_STEPS: Final = 32  # of a filter, test, method or macro
_CHARS_OF_STEP: Final = 32
_MAX_WIDTH: Final = 64  # of numbers and texts that say how something is written
_MAX_NUMBER: Final = 2**31
_STRINGS: Final = (str, Markup)
_EMPTY: Final[dict[str, str]] = {}
_LISTS: Final[tuple[type, ...]] = (
    *(list, tuple),
    *(type(_EMPTY.keys()), type(_EMPTY.values()), type(_EMPTY.items())),
)
_SCALARS: Final = (int, float, bool, type(None), Undefined)
_FREE_FILTERS: Final = _names("count d default first last length")
_SORTS: Final = _names("dictsort sort unique")
_FILTERS: Final = _SORTS | _names(
    "capitalize float from_json indent int items join list lower map reject rejectattr replace "
    "reverse safe select selectattr string title tojson trim upper"
)
_FREE_TESTS: Final = _names(
    "boolean defined false float integer iterable mapping none number sequence string true "
    "undefined"
)
_TESTS: Final = _names("!= < <= == > >= eq equalto ge gt in le lt ne")
_GROWING_METHODS: Final = _names(
    "center encode expandtabs format format_map ljust maketrans rjust translate zfill"
)
# Filters that no template can name.
_ROUNDS, _BODY, _VALUE, _TEXT = (f"vinery: {each}" for each in ("rounds", "body", "value", "text"))


class OverBudget(Exception):
    """The template must be rendered in a worker process."""


_purse: Final = threading.local()  # with the steps that are left


def fill_purse() -> None:
    _purse.num_left = _MAX_STEPS


def _pay(num_steps: int) -> None:
    _purse.num_left -= num_steps
    if _purse.num_left < 0:
        raise OverBudget


def _pay_for(value: Any) -> Any:
    """Return a value that is read as a whole."""
    kind = type(value)
    if kind in _STRINGS:
        _pay(len(value) // _CHARS_OF_STEP)
    elif kind is dict or kind in _LISTS:
        _pay(1 + len(value))
        for each in value.items() if kind is dict else value:
            _pay_for(each)
    elif kind is range:
        _pay(len(value))
    elif kind not in _SCALARS:
        raise OverBudget
    return value


def _rounds(values: Any, num_steps: int = 1) -> Any:
    if not hasattr(values, "__len__"):
        return [each for each in values if not _pay(num_steps)]  # type: ignore[func-returns-value]
    _pay(len(values) * num_steps)
    return values


def _joined(parts: Iterable[Any], separator: str = "") -> str:
    texts = [str(_pay_for(each)) for each in _rounds(parts, 1 + len(separator) // _CHARS_OF_STEP)]
    _pay(sum(map(len, texts)) // _CHARS_OF_STEP)
    return separator.join(texts)


def _pay_for_replacing(text: Any, old: Any, new: Any, *_: Any) -> None:
    if not all(type(each) in _STRINGS for each in (text, old, new)):
        raise OverBudget
    _pay(text.count(old) * len(new) // _CHARS_OF_STEP)


def _refused(*_: Any, **__: Any) -> NoReturn:
    raise OverBudget


def _paid(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter or test that pays for its values and its result."""
    first = int(hasattr(function, "jinja_pass_arg"))

    @wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        _pay(_CALL_STEPS)
        num_before = _purse.num_left
        values = [_pay_for(each) for each in (*args[first:], *named.values())]
        if name == "replace":
            _pay_for_replacing(*values)
        elif name in _FILTERS and any(map(_is_wide, values[1:])):
            raise OverBudget
        if name in _SORTS:
            _pay(16 * (num_before - _purse.num_left))
        result = function(*args, **named)
        return _pay_for(_rounds(result) if hasattr(result, "__next__") else result)

    return run


def _is_wide(option: Any) -> bool:
    return abs(option) > _MAX_WIDTH if type(option) is int else len(str(option)) > _MAX_WIDTH


def _only(functions: Any, free: Iterable[str], paid: Iterable[str]) -> dict[str, Any]:
    return {
        **dict.fromkeys(functions, _refused),
        **{name: functions[name] for name in free},
        **{name: _paid(name, functions[name]) for name in paid},
    }


def _filtered(node: Any, name: str, *args: nodes.Expr) -> nodes.Expr:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)


def _num_nodes(node: nodes.Node) -> nodes.Const:
    return nodes.Const(sum(1 for _ in node.find_all(nodes.Node)))


class _Prices(NodeTransformer):
    """Puts payments into a parsed template."""

    def generic_visit(self, node: nodes.Node, *args: Any, **named: Any) -> nodes.Node:
        super().generic_visit(node)
        match node:
            case nodes.For():
                node.iter = _filtered(node.iter, _ROUNDS, _num_nodes(node))
            case nodes.Macro() | nodes.CallBlock():
                node.body.insert(0, nodes.ExprStmt(_filtered(_num_nodes(node), _BODY)))
            case nodes.Concat():
                return _filtered(nodes.List(node.nodes), _TEXT)
            case nodes.Operand() | nodes.Compare():
                node.expr = _filtered(node.expr, _VALUE)
            case nodes.Getitem(arg=nodes.Slice()):
                node.node = _filtered(node.node, _VALUE)
            case nodes.Tuple(ctx="store"):
                return node
            case nodes.List() | nodes.Tuple() | nodes.Dict():
                return _filtered(node, _VALUE)
        return node


class FrugalEnvironment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(("+", "*", "**", "%"))
    concat = staticmethod(_joined)

    def seal(self) -> None:
        """Put prices on the filters and tests. Only these globals may be called."""
        own = _ROUNDS, _BODY, _VALUE, _TEXT
        self.filters = _only(self.filters, _FREE_FILTERS, _FILTERS)
        self.filters |= zip(own, (_rounds, _pay, _pay_for, _joined), strict=True)
        self.finalize = pass_context(lambda _, value: _pay_for(value))
        self.tests = _only(self.tests, _FREE_TESTS, _TESTS)
        named = (self.globals[name] for name in ("raise_exception", "strftime_now"))
        self._callable = (safe_range, Namespace, *named)

    def _parse(self, *args: Any) -> nodes.Template:
        tree: nodes.Template = _Prices().visit(super()._parse(*args))
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        values, most = (left, right), _MAX_WIDTH if operator == "**" else _MAX_NUMBER
        if operator == "+":
            _pay_for(left), _pay_for(right)
        elif not all(type(each) in (int, float) and abs(each) < most for each in values):
            raise OverBudget
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __called: Any, *args: Any, **named: Any) -> Any:  # noqa: N805
        owner: Any = getattr(__called, "__self__", None)
        name = getattr(__called, "__name__", "")
        if type(owner) in _STRINGS and name not in _GROWING_METHODS:
            _pay_for((owner, *args, *named.values()))
            if name == "replace":
                _pay_for_replacing(owner, *args)
            elif name == "join":
                _rounds(args[0], len(owner) // _CHARS_OF_STEP)
        elif type(owner) is dict and name in ("get", "items", "keys", "values"):
            pass
        elif type(__called) is not Macro and not any(__called is each for each in __self._callable):
            raise OverBudget
        _pay(_CALL_STEPS)
        result = super().call(__context, __called, *args, **named)
        return _pay_for(result) if type(result) in (*_STRINGS, list) else result
