"""What a task wishes of the machine that runs it: `requires`, which must hold, and `rank`, of which
more is better. Both are formulas over what a machine offers when it is asked.

| name | what it is |
|---|---|
| `cores`, `memory`, `disk`, `gpus` | what is free there now; bytes |
| `all_cores`, `all_memory` | what there is in all |
| `lifetime` | seconds until it will be gone; very many if it does not know |
| `site` | its site, a text |
| `load` | the share of its cores that is in use |
| `size` | bytes of the task's inputs |
| `held("PATH", ...)` | how many bytes of these inputs it holds; `held()` of all |
| `tag("NAME")` | how many of a tag are free there; 0 if it does not have it |
"""

from __future__ import annotations

from functools import lru_cache

from sureline.chemistry.arithmetic import NoSenseError
from sureline.chemistry.formulas import Formula
from sureline.chemistry.mistakes import ChemistryError
from sureline.chemistry.molecules import Molecule
from sureline.workflow.quantities import QuantityError

FEATURES = (
    "cores",
    "memory",
    "disk",
    "gpus",
    "all_cores",
    "all_memory",
    "lifetime",
    "load",
    "size",
    "site",
)
FUNCTIONS = ("held", "tag")
INPUTS = "inputs"
"""`held(inputs)` means all of them."""
TEXT_MAX = 2000
_SAMPLE: tuple[Molecule, ...] = (2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 0.5, 19.0, "there")


@lru_cache(maxsize=4096)
def formula_of(text: str) -> Formula:
    """Raises ChemistryError; `parse_requires` and `parse_rank` have looked at it before."""
    return Formula(text, FEATURES, FUNCTIONS)


def held_in(text: str) -> list[str]:
    """The inputs that a formula names; none, if it cannot be understood."""
    try:
        calls = formula_of(text).calls if text else ()
    except ChemistryError:
        return []
    held = [names for function, names in calls if function == "held" and names != (INPUTS,)]
    return [name for names in held for name in names]


def parse_requires(text: str) -> str:
    """Raises QuantityError for what is no condition."""
    return _checked(text, bool, "a condition, such as: memory >= 8GB and lifetime > 2h")


def parse_rank(text: str) -> str:
    """Raises QuantityError for what comes to no number."""
    return _checked(text, float, "a number, such as: held() / size + cores")


def _checked(text: str, kind: type, wanted: str) -> str:
    stripped = text.strip()
    if not stripped:
        return ""
    if len(stripped) > TEXT_MAX:
        raise QuantityError(f"it has {len(stripped)} characters", f"{TEXT_MAX} are understood")
    try:
        found = formula_of(stripped).value(_SAMPLE, lambda call: 23.0)
    except ChemistryError as error:
        where = f"{_position(error.place)}: {error.what}"
        raise QuantityError(f"'{stripped}', {where}", error.hint) from None
    except NoSenseError as error:
        raise QuantityError(
            f"'{stripped}', {_position(error.place)}: {error.what}", f"write {wanted}"
        ) from None
    if isinstance(found, bool) != (kind is bool) or isinstance(found, str):
        raise QuantityError(
            f"'{stripped}' is no {'condition' if kind is bool else 'number'}", f"write {wanted}"
        )
    return stripped


def _position(place: tuple[int, int]) -> str:
    line, column = place
    return f"column {column}" if line == 1 else f"line {line}, column {column}"
