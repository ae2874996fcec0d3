"""Guests of a grid: several of one process are told apart."""

from sureline.compose.node import guest_suffix
from sureline.world.address import Node, name_of, peer_of


def test_two_guests_of_one_process_have_names_of_their_own():
    """Two runs at once in one process answered for each other: the suffix was its number."""
    one, other = (Node(f"lab7+{guest_suffix()}@10.0.0.5:7733") for _ in range(2))
    assert name_of(one) != name_of(other)
    assert peer_of(one) == peer_of(other) == "lab7"
