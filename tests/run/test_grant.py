"""The grant of epochs: every state that three keepers and three writers can get into."""

from __future__ import annotations

from grant_explorer import Explorer


def test_every_state_of_three_keepers_and_three_writers():
    assert Explorer("abc", "xyz", numbers=2).walk(100_000) > 10_000
