"""Where contents are had from: the order of asking, sharing, turns, announcing; without any I/O."""

from __future__ import annotations

from sureline.peer.files.finding import (
    ANNOUNCED_PER_TURN,
    BEHIND_TURNS,
    RESCAN_TURNS,
    SOURCES_MAX,
    TRANSFERS_MAX,
    Announcer,
    FetchError,
    Finder,
    mention_pause,
)

ME = "me"


class Table:
    """A hash table whose answers can be held back, and a clock."""

    def __init__(self, holders=None):
        self.holders = holders or {}
        self.told, self.withdrawn, self.asked = [], [], []
        self.timers = []
        self.silent = False

    def announce(self, digest):
        self.told.append(digest)

    def withdraw(self, digest):
        self.withdrawn.append(digest)

    def locate(self, digest, on_done):
        self.asked.append(digest)
        if not self.silent:
            on_done(self.holders.get(digest, ()))

    def after(self, seconds, action):
        self.timers.append(action)


class Moves:
    """Transfers that the test ends."""

    def __init__(self):
        self.begun = []

    def __call__(self, hunt, on_landed):
        self.begun.append((hunt, on_landed))


def drawn(hunt):
    """All sources in the order in which they would be asked."""
    found = []

    def heard(node):
        if node is not None:
            found.append(node)
            hunt.next(heard)

    hunt.next(heard)
    return found


def test_named_sources_come_first_in_their_order_then_the_hash_table():
    table, moves = Table({"d": [ME, "c", "a", "x"]}), Moves()
    finder = Finder(ME, table, table.after)
    finder.bring("d", ["b", "a", ME, "b"], moves, lambda how: None)
    ((hunt, _),) = moves.begun
    assert drawn(hunt) == ["b", "a", "c", "x"]
    assert table.asked == ["d"]


def test_all_askers_share_one_transfer_and_name_its_sources():
    table, moves = Table(), Moves()
    finder = Finder(ME, table, table.after)
    landed, progress, more = [], [], []
    finder.bring("d", ["a"], moves, lambda how: landed.append(("first", how)))
    ((hunt, on_landed),) = moves.begun
    hunt.on_more = more.extend
    assert [drawn_next(hunt)] == ["a"]
    finder.bring(
        "d",
        ["b", "a"],
        moves,
        lambda how: landed.append(("second", how)),
        lambda *at: progress.append(at),
    )
    assert len(moves.begun) == 1 and more == ["b"]
    assert drawn_next(hunt) == "b", "a source that only the second asker named is asked too"
    hunt.progressed(1, 2)
    on_landed("b")
    assert (landed, progress) == ([("first", "b"), ("second", "b")], [(1, 2)])
    assert not finder.is_coming("d")
    finder.bring("d", [], moves, lambda how: None)
    assert len(moves.begun) == 2, "what has landed is fetched anew when asked for again"


def drawn_next(hunt):
    found = []
    hunt.next(found.append)
    return found[0]


def test_so_many_at_once_and_a_failure_lets_the_next_one_begin():
    table, moves, landed = Table(), Moves(), []
    finder = Finder(ME, table, table.after)
    for number in range(TRANSFERS_MAX + 2):
        finder.bring(f"d{number}", [], moves, landed.append)
    assert len(moves.begun) == TRANSFERS_MAX
    error = FetchError("no")
    moves.begun[0][1](error)
    assert landed == [error]
    assert [hunt.digest for hunt, _ in moves.begun][-1] == f"d{TRANSFERS_MAX}"


def test_a_hash_table_that_does_not_answer_is_not_waited_for_and_late_answers_count_for_nothing():
    table, found = Table({"d": ["a"]}), []
    table.silent = True
    answers = []
    table.locate = lambda digest, on_done: answers.append(on_done)
    Finder(ME, table, table.after).locate("d", found.append)
    assert found == []
    for action in table.timers:
        action()
    assert found == [[]]
    answers[0](["a"])
    assert found == [[]]


def test_sources_are_bounded():
    table, moves = Table(), Moves()
    finder = Finder(ME, table, table.after)
    finder.bring("d", [f"n{number}" for number in range(1000)], moves, lambda how: None)
    assert len(moves.begun[0][0].sources()) == SOURCES_MAX


class Shelf:
    def __init__(self, digests):
        self.digests = dict.fromkeys(digests)
        self.fresh = []

    def announced(self):
        return list(self.digests)

    def take_fresh(self, limit):
        taken, self.fresh = self.fresh[:limit], self.fresh[limit:]
        return taken

    def has(self, digest):
        return digest in self.digests


def test_what_is_here_is_announced_little_by_little_and_what_has_gone_withdrawn():
    table, shelf = Table(), Shelf(f"d{number}" for number in range(ANNOUNCED_PER_TURN + 10))
    announcer = Announcer(table, shelf, lambda digest: digest == "coming")
    del shelf.digests["d0"]  # gone before it was announced
    assert announcer.turn() is True
    assert len(table.told) == ANNOUNCED_PER_TURN - 1
    shelf.fresh = ["new"]
    shelf.digests["new"] = None
    assert announcer.turn() is False
    assert len(table.told) == len(shelf.digests) and "new" in table.told
    announcer.tell("coming")
    del shelf.digests["d1"]
    for _ in range(3):
        announcer.turn()
    assert table.withdrawn == ["d1"]


def test_what_tasks_made_is_announced_with_pauses_and_what_a_user_put_at_once():
    table, shelf = Table(), Shelf([])
    announcer = Announcer(table, shelf, lambda digest: False, lambda: 30)
    shelf.digests = dict.fromkeys(["made", "next", "put"])
    announcer.mention("made")
    announcer.mention("next")
    shelf.fresh = ["put"]
    for _ in range(15):
        assert announcer.turn() is True
    assert list(table.told) == ["put"]  # a user waits for it
    turns = next(turn for turn in range(16, 100) if announcer.turn() is False)
    assert list(table.told) == ["put", "made", "next"] and 2 * 15 <= turns <= 2 * 45


def test_the_larger_the_grid_and_the_less_time_there_is_the_longer_the_pauses():
    assert [mention_pause(n, is_behind=False) for n in (3, 60, 1500)] == [0, 15, 375]
    assert mention_pause(3, is_behind=True) == BEHIND_TURNS


def test_what_has_piled_up_is_told_faster():
    table, shelf = Table(), Shelf([])
    announcer = Announcer(table, shelf, lambda digest: False, lambda: 4)
    shelf.digests = dict.fromkeys(f"d{number}" for number in range(1000))
    for digest in shelf.digests:
        announcer.mention(digest)
    for _ in range(1000):
        announcer.turn()
    assert len(table.told) == 1000


def test_where_there_is_time_it_is_announced_at_once():
    table, shelf = Table(), Shelf([])
    announcer = Announcer(table, shelf, lambda digest: False)
    announcer.mention("made")
    assert list(table.told) == ["made"]


def test_nodes_do_not_announce_at_the_same_time():
    waited = []
    for number in range(100):
        table, shelf = Table(), Shelf([])
        announcer = Announcer(table, shelf, lambda digest: False, lambda: 20)
        shelf.digests = dict.fromkeys([f"d{number}"])
        announcer.mention(f"d{number}")
        waited.append(next(turn for turn in range(100) if announcer.turn() is False))
    assert max(waited) <= 30 and len(set(waited)) > 10


def test_what_another_process_of_the_home_has_fetched_is_announced_in_the_end():
    table, shelf = Table(), Shelf([])
    announcer = Announcer(table, shelf, lambda digest: False)
    announcer.turn()
    shelf.digests["home"] = None
    for _ in range(RESCAN_TURNS):
        announcer.turn()
    assert list(table.told) == ["home"]
