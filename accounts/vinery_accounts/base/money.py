"""Amounts of money: millionths of the currency in tables and limits, decimals for people."""

from decimal import ROUND_HALF_UP, Decimal
from typing import Final

from vinery_accounts.base.limit_table import Metric, Window, in_words

MILLION: Final = 1_000_000


def money(millionths: float, code: str) -> str:
    """Return an amount, exact to a millionth, with at least two decimals: 12.50 EUR."""
    exact = (Decimal(str(millionths)) / MILLION).quantize(Decimal("0.000001"), ROUND_HALF_UP)
    whole, _, decimals = f"{exact:,.6f}".partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')} {code}".rstrip()


def short_money(millionths: float, code: str) -> str:
    """Return an amount for a tile or a cell: to the cent, unless it is less than ten cents."""
    is_small = millionths < MILLION / 10
    return money(millionths, code) if is_small else f"{millionths / MILLION:,.2f} {code}"


def whole(amount: Decimal, unit: int) -> int:
    """Return an amount in whole units: millionths of the currency, or 1. Raises ValueError for a
    smaller part."""
    if not amount.is_finite() or amount * unit % 1:
        text = "an amount of money with at most six decimals" if unit > 1 else "a whole number"
        raise ValueError(f"{amount} is not {text}.")
    return int(amount * unit)


def quantity(metric: str, number: float, code: str) -> str:
    """Return a number of a metric: 1,234 tokens have 1,234, and a cost has 12.50 EUR."""
    return money(number, code) if metric == Metric.COST else f"{number:,.0f}"


def limited(metric: str, window: str, amount: float, code: str) -> str:
    """Return a limit in words: 50.00 EUR per month, 1,000 tokens per day."""
    words = in_words(metric, window)
    if metric == Metric.COST:
        words = "in total" if window == Window.NONE else f"per {window}"
    return f"{quantity(metric, amount, code)} {words}"
