"""One machine: what it offers, the files it holds, and the jobs it runs.

Lives here: job types (`jobs`), the content-addressed store (`store`; `ingest` takes the user's
files in), the slot process that runs one job at a time in a fresh directory (`slot`), the runner
that drives slot processes from an event loop (`runner`), leftovers of dead processes (`orphans`),
Python calls (`calls`), the machine's capacity (`capacity`) and the agent that admits tasks
(`agent`). On a grid: the agent that runs tasks for others (`grid_agent`), its reports (`outbox`),
the writers it knows (`writers`).
Does not live here: which task goes where (that is `run` and `strategies`), the journal.
Imports `workflow` and `world`.
"""
