"""When will it be done: durations of tasks, what earlier runs took, and the finish of the graph.

Lives here: what is known of a graph's tasks (`shape`), a model of their durations (`durations`,
over `repeats` for what earlier runs say, `sizes` and `speeds` for inputs and machines, `tables` for
distributions), what is left of running tasks (`remaining`), the finish time on limited machines by
Monte-Carlo (`finish`, over `pools` and `rooms` for what limits, `folding` for large graphs,
`simulate` and the compiled `kernel` for the schedule), the paper's PERT and the plain critical path
(`methods`), the progress of a run as a snapshot (`progress`), forecasts before and during a run and
as if something were changed (`follow`, `change`), where the numbers come from (`sources`), and
what a forecast is and how it reads (`result`).
Does not live here: deciding anything, showing anything. Imports `workflow` and `journal`.
`follow`, `progress`, `change`, `machines` and `result` load without numpy; the others need it, and
only `compiled` imports Numba.
"""
