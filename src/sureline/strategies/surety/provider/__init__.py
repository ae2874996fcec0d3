"""The half on every machine (`agent`), and its parts.

Contracts from when they are made until they are over (`promises`), places that are promised once
(`places`), what was learned of durations (`experience`), and what makes sense of what clients say
(`sense`).
"""
