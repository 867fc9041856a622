"""The strings of a schema alternative as a regular language: patterns, lengths and formats (JSON
Schema 2020-12, section 7.3). All texts of a format's pattern fit the format, but not the other way
round. `SHORT_FORMATS` has smaller automata, for strings with a bounded length.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from vinery_serving.grammars.grammar.languages import (
    ANY,
    NOTHING,
    Language,
    intersection,
    literal,
    times,
    union,
)
from vinery_serving.grammars.grammar.patterns import fullmatch_language
from vinery_serving.grammars.json_schema.alternatives import allowed_types, count_bounds
from vinery_serving.grammars.json_schema.nodes import SchemaNode, constants_of, pattern_language

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL}){{0,8}}"
_DOMAIN = rf"(?:{_LABEL}\.){{1,4}}[A-Za-z]{{2,12}}"
_ATOM = r"[A-Za-z0-9_+-]{1,30}"
_EMAIL = rf"{_ATOM}(?:\.{_ATOM})?@{_DOMAIN}"
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_GROUP = r"[0-9a-fA-F]{1,4}"
_IPV6 = "|".join(
    (
        rf"(?:{_GROUP}:){{7}}{_GROUP}",
        *(rf"(?:{_GROUP}:){{{n}}}(?::{_GROUP}){{1,{7 - n}}}" for n in range(1, 7)),
        rf":(?::{_GROUP}){{1,7}}",
        rf"(?:{_GROUP}:){{1,7}}:",
        "::",
    )
)
_URI_CHAR = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-F]{2})"
_URI_TAIL = rf"(?:\?{_URI_CHAR}{{0,150}})?(?:#{_URI_CHAR}{{0,150}})?"
_URI = rf"[a-z][a-z0-9+.-]{{1,14}}:(?://{_HOST}(?::[1-9][0-9]{{0,3}})?(?:/{_URI_CHAR}{{0,150}})?|[a-z0-9]{_URI_CHAR}{{0,150}}){_URI_TAIL}"
_LONG_MONTHS = r"(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
_SHORT_MONTHS = r"(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
_FEBRUARY = r"02-(?:0[1-9]|1[0-9]|2[0-8])"
_LEAP_YEAR = r"(?:[1-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)"
_DATE = rf"(?:[1-9][0-9]{{3}}-(?:{_LONG_MONTHS}|{_SHORT_MONTHS}|{_FEBRUARY})|{_LEAP_YEAR}-02-29)"
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_CLOCK}:[0-5][0-9](?:\.[0-9]{{1,6}})?(?:Z|[+-]{_CLOCK})"
_N = r"[0-9]{1,4}"
_DAYS = rf"(?:{_N}Y(?:{_N}M(?:{_N}D)?)?|{_N}M(?:{_N}D)?|{_N}D)"
_HOURS = rf"T(?:{_N}H(?:{_N}M(?:{_N}S)?)?|{_N}M(?:{_N}S)?|{_N}S)"
_DURATION = rf"P(?:{_DAYS}(?:{_HOURS})?|{_HOURS}|{_N}W)"
_POINTER = r"(?:/(?:[^~/]|~[01])*)*"

FORMATS: Final[Mapping[str, str]] = {
    "date": _DATE,
    "date-time": rf"{_DATE}T{_TIME}",
    "time": _TIME,
    "duration": _DURATION,
    **dict.fromkeys(("email", "idn-email"), _EMAIL),
    **dict.fromkeys(("hostname", "idn-hostname"), _HOST),
    "ipv4": rf"{_OCTET}(?:\.{_OCTET}){{3}}",
    "ipv6": _IPV6,
    **dict.fromkeys(("uri", "iri"), _URI),
    **dict.fromkeys(
        ("uri-reference", "iri-reference"), rf"(?:{_URI}|/{_URI_CHAR}{{0,150}}{_URI_TAIL})"
    ),
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "json-pointer": _POINTER,
    "relative-json-pointer": rf"(?:0|[1-9][0-9]{{0,4}})(?:#|{_POINTER})",
}
_SHORT_HOST = r"[a-z]+(?:\.[a-z]+)*"
_SHORT_EMAIL = r"[a-z0-9]+@[a-z]+(?:\.[a-z]+)*\.[a-z]{2,3}"
_SHORT_URI = rf"https?://{_SHORT_HOST}(?:/[A-Za-z0-9._~/-]*)?"
SHORT_FORMATS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("email", "idn-email"), _SHORT_EMAIL),
    **dict.fromkeys(("hostname", "idn-hostname"), _SHORT_HOST),
    **dict.fromkeys(("uri", "uri-reference", "iri", "iri-reference"), _SHORT_URI),
}


def string_language(nodes: Sequence[SchemaNode]) -> Language:
    """Return the strings that fit all these nodes, apart from their references and options. Raises
    `SchemaError` as `count_bounds` does."""
    if "string" not in allowed_types(nodes):
        return NOTHING
    demands = [*string_demands(nodes), times(ANY, *count_bounds(nodes, "Length"))]
    for node in nodes:
        if values := constants_of(node.schema):
            demands.append(union(literal(value) for value in values if isinstance(value, str)))
    return intersection(*demands)


def string_demands(nodes: Sequence[SchemaNode], *, is_short: bool = False) -> list[Language]:
    """Return the languages of the patterns and formats. `is_short`: formats have their short
    patterns."""
    formats = {**FORMATS, **SHORT_FORMATS} if is_short else FORMATS
    found = []
    for node in nodes:
        if "pattern" in node.keywords:
            found.append(pattern_language(node.keywords["pattern"]))
        if (pattern := formats.get(node.keywords.get("format", ""))) is not None:
            found.append(_format_language(pattern))
    return found


# Parsing the pattern of a URI takes milliseconds.
_format_language = lru_cache(maxsize=64)(fullmatch_language)
