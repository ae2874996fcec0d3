"""The engine of one run: readiness, attempts, commit once, reuse, resume, cancelling.

- `engine` is the agent that drives a run and writes its journal, on one machine or over a grid; it
  is composed with a strategy, whose port is `port`.
- Its parts: what it is told from outside (`options`), states of tasks (`states`), inputs and past
  results (`staging`, `past`), what is known of files and results (`known`), what a result depends
  on (`keys`), the order of ready tasks (`ready`), what a target is told and what can travel
  (`binds`), the book of attempts (`attempts`), targets that come and go (`fleet`, `contact`), what
  peers report, checked (`report_checks`) and as events (`as_events`), what becomes of results
  (`delivery`, with `holders`, `homing`, `publisher`, `receipts`), how long tasks will take
  (`estimates`), and stopping when another has taken over (`fence`).
- Of a run with a deadline (`watch`): when it will be done (`outlook`), watching over that and
  repairing it (`monitor`, `repair`), what can be done for nothing (`free_repair`), and whether it
  can be kept at all (`feasible`).
- Copies of runs, kept by others: `keeper`, `mirror`, what they say (`keeping`), where copies lie
  (`kept`), and reading them (`copies`); who drives a run just now (`presence`).
- Who may write a run: the rules (`grant`), who asks (`claiming`), what a writer holds (`office`),
  and from whom a keeper lets a run be taken (`hearing`).

No clocks, threads, files or processes: all that comes from the world. Imports `workflow`, `world`,
`journal` (event types), `forecast`, `overlay` (types) and `peer` (jobs and messages).
"""
