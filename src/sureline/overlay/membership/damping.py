"""Members that come and go all the time.

The protocol follows every change; whoever looks at the members does not have to. A member that
has died several times of late is shown as dead until it has been back for a while, and the while
doubles with every further death. News about it is no longer hurried on, either.
"""

from __future__ import annotations

import msgspec

DEATHS_FREE = 2
"""So many deaths within the window are bad luck."""
HOLD_S = 5.0
HOLD_S_MAX = 120.0
WINDOW_S = 120.0
"""A member that has not died for so long has a clean sheet."""


class _Sheet(msgspec.Struct):
    deaths: int
    last_at: float
    held_until: float = 0.0


class Damping:
    """Keeps a sheet for each member that died within the window; `members_max` at most."""

    def __init__(self, members_max: int) -> None:
        self._members_max = members_max
        self._sheets: dict[str, _Sheet] = {}

    def died(self, name: str, now: float) -> None:
        sheet = self._sheets.pop(name, None)
        if sheet is None or now - sheet.last_at > WINDOW_S:
            sheet = _Sheet(0, now)
        sheet.deaths += 1
        sheet.last_at = now
        sheet.held_until = 0.0
        self._sheets[name] = sheet
        if len(self._sheets) > self._members_max:
            del self._sheets[next(iter(self._sheets))]

    def returned(self, name: str, now: float) -> None:
        """It is back; from now on it has to stay for a while if it died too often."""
        sheet = self._sheets.get(name)
        if sheet is not None and now - sheet.last_at <= WINDOW_S:
            sheet.held_until = now + hold_s(sheet.deaths)

    def is_held(self, name: str, now: float) -> bool:
        """Whether it is to be shown as dead although it is back."""
        sheet = self._sheets.get(name)
        return sheet is not None and now < sheet.held_until

    def is_flapping(self, name: str, now: float) -> bool:
        sheet = self._sheets.get(name)
        return sheet is not None and sheet.deaths > DEATHS_FREE and now - sheet.last_at <= WINDOW_S


def hold_s(deaths: int) -> float:
    """
    >>> [hold_s(deaths) for deaths in (1, 2, 3, 4, 5, 9)]
    [0.0, 0.0, 5.0, 10.0, 20.0, 120.0]
    """
    if deaths <= DEATHS_FREE:
        return 0.0
    return float(min(HOLD_S * 2.0 ** min(deaths - DEATHS_FREE - 1, 10), HOLD_S_MAX))
