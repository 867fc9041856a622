"""Grammars as values: expressions and rules, regular languages and Lark grammars."""
