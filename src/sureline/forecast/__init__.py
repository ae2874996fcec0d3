"""When will it be done: durations of tasks, what earlier runs took, and the finish of the graph.

Lives here: what is known of a graph's tasks (`shape`), a model of their durations (`durations`,
over `learning` for what was observed), the finish time on limited slots by Monte-Carlo (`finish`,
over `pools` for what limits, `folding` for large graphs and `simulate` for the schedule), the
progress of a run as a snapshot (`progress`), forecasts before and during a run (`follow`), and
what they are and how they read (`result`).
Does not live here: deciding anything, showing anything. Imports `workflow` and `journal`.
`follow`, `progress` and `result` load without numpy; the others need it.
"""
