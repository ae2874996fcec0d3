"""What does not fit a strategy's setting is told in words, for all of them."""

from __future__ import annotations

import msgspec
import pytest

from sureline.strategies import known, settings_of, strategy
from sureline.workflow.mistakes import UserError

TYPED = [
    (one.name, field.encode_name)
    for one in known().values()
    for field in msgspec.structs.fields(one.settings)
    if not isinstance(field.default, str) or "Literal" in str(field.type)
]


@pytest.mark.parametrize(("name", "setting"), TYPED)
def test_a_value_that_does_not_fit_is_told_with_what_does(name, setting):
    with pytest.raises(UserError) as told:
        settings_of(strategy(name), {setting: "so so"})
    assert f"{setting}=so so of {name} does not fit: it is " in str(told.value)
    assert "`" not in str(told.value)  # as the decoder says it
    assert f"; see: sureline strategies {name}" in str(told.value)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("chemical", {"barriers": "on "}, "on or off (did you mean on?)"),
        ("latebinding", {"assignment": "gready"}, "exact or greedy (did you mean greedy?)"),
        ("latebinding", {"priority": "5000"}, "a whole number, at least -1,000 and at most 1,000"),
        ("opportunistic", {"selector_s": "0"}, "a number, above 0 and at most 3,600"),
    ],
)
def test_known_values_and_bounds_are_named(name, given, said):
    with pytest.raises(UserError) as told:
        settings_of(strategy(name), given)
    assert f"it is {said};" in str(told.value)
