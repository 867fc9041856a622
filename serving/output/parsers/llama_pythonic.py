"""Llama's models where their template asks for calls in Python.

    [get_weather(city="Paris", days=3), get_time()]

Some models write their tag for code before the list.
"""

from __future__ import annotations

from serving.output.parsers.pythonic import ListTags, pythonic_family

# Llama 3.2 and 3.3, then Llama 4.
TAGS3 = ListTags("<|python_tag|>", "", is_bare=True)
TAGS4 = ListTags("<|python_start|>", "<|python_end|>", is_bare=True)

LLAMA3_PYTHONIC = pythonic_family(TAGS3)
LLAMA4_PYTHONIC = pythonic_family(TAGS4)
