"""Distributions as a scenario writes them: `3`, `"uniform(1s, 5s)"`, `"lognormal(60s, 0.5)"`.

    uniform(low, high)          every value between the two is as likely
    normal(mean, sd)            cut off at the bounds of what is described
    lognormal(median, sigma)    sigma is the spread of the logarithm: 0.5 is a factor of 1.6
    exponential(mean)           the gaps between things that happen at random
    pareto(least, shape)        a heavy tail; the smaller the shape, the heavier
    choice(a, b, ...)           one of these

Arguments are written in the unit of what is described (durations, sizes, plain numbers); sigma
and shape are plain numbers. A value alone always gives itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

import msgspec

from sureline.workflow.collect import did_you_mean
from sureline.workflow.quantities import QuantityError

_CALL = re.compile(r"\s*([a-z]+)\s*\((.*)\)\s*", re.DOTALL)
_ARGUMENTS = {
    "uniform": ("low", "high"),
    "normal": ("mean", "sd"),
    "lognormal": ("median", "sigma"),
    "exponential": ("mean",),
    "pareto": ("least", "shape"),
}
FORMS = (*_ARGUMENTS, "choice")
_PLAIN = frozenset({"sigma", "shape"})
CHOICES_MAX = 1000


class Distribution(msgspec.Struct, frozen=True):
    """Made by `parse_distribution`. Draws are cut to `least` .. `most`."""

    form: str
    arguments: tuple[float, ...]
    least: float = 0.0
    most: float = float("inf")

    def draw(self, random: Random) -> float:
        a = self.arguments
        match self.form:
            case "constant":
                value = a[0]
            case "uniform":
                value = random.uniform(a[0], a[1])
            case "normal":
                value = random.normalvariate(a[0], a[1])
            case "lognormal":
                value = a[0] * random.lognormvariate(0.0, a[1])
            case "exponential":
                value = random.expovariate(1.0 / a[0])
            case "pareto":
                value = a[0] * random.paretovariate(a[1])
            case _:
                value = random.choice(a)
        return min(self.most, max(self.least, value))


def constant(value: float) -> Distribution:
    return Distribution("constant", (value,), least=min(0.0, value))


def parse_distribution(
    written: str | float,
    parse: Callable[[str], float],
    *,
    least: float = 0.0,
    most: float = float("inf"),
    forms: Sequence[str] = FORMS,
) -> Distribution:
    """`parse` reads one value in its unit. Raises QuantityError."""
    if not isinstance(written, str):
        return _checked(Distribution("constant", (parse(repr(written)),), least, most), written)
    call = _CALL.fullmatch(written)
    if call is None:
        return _checked(Distribution("constant", (parse(written),), least, most), written)
    form, texts = call[1], [text.strip() for text in call[2].split(",")]
    if form not in forms:
        hint = did_you_mean(form, forms, "known here are " + ", ".join(forms))
        raise QuantityError(f"'{form}' is not a distribution for this", hint)
    if form == "choice":
        if len(texts) > CHOICES_MAX:
            raise QuantityError(f"'{form}' has {len(texts)} values", f"give at most {CHOICES_MAX}")
        values = tuple(parse(text) for text in texts)
        return _checked(Distribution(form, values, least, most), written)
    names = _ARGUMENTS[form]
    if len(texts) != len(names):
        hint = f"write {form}({', '.join(names)})"
        raise QuantityError(f"'{written}' has {len(texts)} values", hint)
    values = tuple(
        _plain(text, name) if name in _PLAIN else parse(text)
        for name, text in zip(names, texts, strict=True)
    )
    return _checked(Distribution(form, values, least, most), written)


def _plain(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1000 or (name == "shape" and value == 0):
        raise QuantityError(f"'{text}' is not a {name}", "write a positive number, such as 0.5")
    return value


def _checked(found: Distribution, written: object) -> Distribution:
    """Refuse what could only give values that do not count, or would divide by zero."""
    a = found.arguments
    if found.form in ("constant", "choice"):
        wrong = [value for value in a if not found.least <= value <= found.most]
        if wrong:
            bounds = f"{found.least:g} and {found.most:g}"
            raise QuantityError(f"'{written}' is out of bounds", f"give values between {bounds}")
    elif found.form == "uniform" and a[0] > a[1]:
        raise QuantityError(f"'{written}' is out of order", "write the smaller value first")
    elif found.form == "normal" and a[1] < 0:
        raise QuantityError(f"'{written}' has a negative spread", "write a spread of 0 or more")
    elif found.form in ("lognormal", "exponential", "pareto") and a[0] <= 0:
        raise QuantityError(f"'{written}' starts from {a[0]:g}", "write a value above 0")
    return found
