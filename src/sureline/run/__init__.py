"""The engine of one run: readiness, attempts, commit once, reuse, resume, cancelling.

Lives here: the agent that drives a run (`submitter`), what it is told from outside (`options`),
what it knows of files and results (`known`), the order of ready tasks (`ready`), what a result
depends on (`keys`), past results (`past`), putting files in place (`publisher`), and the port that
strategies plug into (`strategy`). No clocks, threads, files or processes: all that comes from the
world. Imports `workflow`, `world`, `journal` (event types) and `peer` (jobs and messages).
"""
