"""When will it be done: durations of tasks, what earlier runs took, and the finish of the graph.

Lives here: durations (`durations`), what the journal remembers of them (`history`), and the
finish time of a graph on limited slots by Monte-Carlo (`finish`).
Does not live here: deciding anything, showing anything. Imports `workflow` and `journal`.
"""
