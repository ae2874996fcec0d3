"""A workflow of Python calls: how many primes below a million, counted in pieces.

Run it twice: the second time nothing is counted again.
"""

from __future__ import annotations

import sureline

PIECES = 8
LIMIT = 1_000_000


def count_primes(start: int, stop: int) -> int:
    """How many primes there are from `start` up to, not including, `stop`."""
    sieve = bytearray([1]) * (stop - start)
    for k in range(2, int(stop**0.5) + 1):
        first = max(k * k, (start + k - 1) // k * k)
        sieve[first - start :: k] = bytes(len(range(first, stop, k)))
    return sum(sieve) - sum(1 for n in (0, 1) if start <= n < stop)


def report(counts: list[int], labels: dict[str, int]) -> str:
    """A sentence. Its arguments hold results of other calls, in a list and in a dictionary."""
    return f"{sum(counts)} primes below {LIMIT}; the first piece has {labels['first']}"


def fragile(number: int) -> float:
    return 1 / number


def main() -> None:
    flow = sureline.Workflow("primes")
    step = LIMIT // PIECES
    counts = [flow.call(count_primes, k * step, (k + 1) * step) for k in range(PIECES)]
    told = flow.call(report, counts, labels={"first": counts[0]})
    listed = flow.task("listing", run="ls -l > files.txt", outputs=["files.txt"])

    results = flow.run()
    print(results[told])
    print("a command's result is its files:", [path.name for path in results[listed]])
    print("tasks:", results.outcome.tasks)

    show_a_failure()
    show_the_executor()


def show_a_failure() -> None:
    """An exception comes back whole, as the cause of RunFailedError."""
    flow = sureline.Workflow("fragile")
    good = flow.call(fragile, 4)
    flow.call(fragile, 0)
    try:
        flow.run()
    except sureline.RunFailedError as failed:
        print(f"failed: {failed}")
        print(f"because of: {failed.__cause__!r}")
        print(f"what was finished is there: {failed.results[good]}")


def show_the_executor() -> None:
    """The same worker processes without a journal, as any `concurrent.futures.Executor`."""
    with sureline.Executor(max_workers=2) as executor:
        print("in the executor:", list(executor.map(fragile, [1, 2, 4])))


if __name__ == "__main__":
    main()
