"""A balanced binary tree of peers that knows, at every branch, what free time lies below it.

`agent.Tree` is the agent; `points` and `summary` say what is known of free time, `search` and
`shelf` find some; `leaf` is the port to a local scheduler; `shape` and `following` are the links.
"""
