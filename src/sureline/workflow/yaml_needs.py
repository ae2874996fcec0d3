"""`needs:` of a task: known amounts, and tags by any other name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from sureline.workflow.collect import nearest
from sureline.workflow.model import Needs
from sureline.workflow.quantities import QuantityError, parse_cores, parse_count, parse_size
from sureline.workflow.yaml_tree import Items, Node, Pairs, Text

NEEDS_KEYS = ("cores", "memory", "disk", "gpus", "tags")

_CLOSE = 0.75  # how alike a key must be to a known one to be taken for a typing error
_TAG = "tags "  # begins the flat key of a tag; no known key has a space

Report = Callable[[QuantityError], None]


def is_close_to_known(key: str) -> bool:
    """Whether a key looks like a known one mistyped, rather than like a tag."""
    return nearest(key, NEEDS_KEYS, _CLOSE) is not None


def flat_needs(node: Pairs) -> Iterator[tuple[str, Node]]:
    """(key, amount) for all that a mapping names; tags have keys that `parse_needs` understands.

    Keys that are close to known ones are left out: they are mistakes, not tags.
    """
    for key, value in node.pairs.items():
        if key in _PARSERS:
            yield key, value
        elif key != "tags":
            if not is_close_to_known(key):
                yield _TAG + key, value
        elif isinstance(value, Pairs):
            yield from ((_TAG + tag, count) for tag, count in value.pairs.items())
        else:
            for item in value.items if isinstance(value, Items) else [value]:
                if isinstance(item, Text):
                    yield _TAG + item.value, Text("1", item.line, True)
                else:
                    yield _TAG, item


def parse_needs(keys: Sequence[str], texts: Sequence[str], report: Report) -> Needs:
    """The needs; every amount that is wrong is reported, and left at its default."""

    def parsed(key: str, text: str) -> float | int | None:
        try:
            return _PARSERS[key](text) if key in _PARSERS else _parse_tag(key, text)
        except QuantityError as error:
            report(QuantityError(f"'{key.removeprefix(_TAG)}': {error.what}", error.hint))
            return None

    amounts = {key: parsed(key, text) for key, text in zip(keys, texts, strict=True)}
    return Needs(
        cores=amounts.get("cores") or 1,
        memory_bytes=int(amounts.get("memory") or 0),
        disk_bytes=int(amounts.get("disk") or 0),
        gpus=int(amounts.get("gpus") or 0),
        tags=tuple(
            (key.removeprefix(_TAG), int(count))
            for key, count in amounts.items()
            if key.startswith(_TAG) and count is not None
        ),
    )


_PARSERS: Mapping[str, Callable[[str], float | int]] = {
    "cores": parse_cores,
    "memory": parse_size,
    "disk": parse_size,
    "gpus": parse_count,
}


def _parse_tag(key: str, text: str) -> int:
    if text.strip().lower() in ("true", "yes"):
        return 1
    try:
        return parse_count(text, least=1)
    except QuantityError as error:
        known = nearest(key.removeprefix(_TAG), NEEDS_KEYS, 0.5)
        hint = f"did you mean '{known}'?" if known else "a tag takes a whole number or `true`"
        raise QuantityError(error.what, hint) from None
