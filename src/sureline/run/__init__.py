"""The engine of one run: readiness, attempts, commit once, reuse, resume, cancelling.

The agent that drives a run is `submitter`, on one machine, and `grid_submitter`, on a grid.
- Of both: what they are told from outside (`options`), states of tasks (`states`), inputs and past
  results (`staging`, `past`), what is known of files and results (`known`), what a result depends
  on (`keys`), the order of ready tasks (`ready`), reports as events (`telling`), putting files in
  place (`publisher`), and the port that strategies plug into (`strategy`).
- Of a run with a deadline (`watch`): when it will be done (`outlook`), watching over that and
  repairing it (`monitor`), what can be done for nothing (`repair`), further attempts on one machine
  (`twins`), and whether it can be kept at all (`feasible`).
- Of a grid run: peers and attempts on them (`grid_attempts`, `fleet`, `attempts`, `binds`), who
  holds which content (`holders`), bringing results home (`homing`), what is owed to peers
  (`receipts`), stopping when another has taken over (`fence`), what cannot run there (`travels`).
- Copies of runs, kept by others: `keeper`, `mirror`, `reading`, and what they say (`keeping`);
  who drives a run just now (`presence`).

No clocks, threads, files or processes: all that comes from the world. Imports `workflow`, `world`,
`journal` (event types), `forecast` and `peer` (jobs and messages).
"""
