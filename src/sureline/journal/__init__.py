"""The journal is the truth: typed events, where they are kept, and views of them.

Lives here: event types (`events`); the SQLite store (`store`, over `schema` and `places`) with one
fenced writer per run (`writer`), made durable in a thread of its own (`durable`); the lock that
tells whether a run is alive (`locks`); views that fold events into states (`views`); selectors of
runs (`select`); a run as JSON lines (`export`) and its import (`merge`).
Does not live here: deciding anything. Imports `workflow` (and the marker types of `world`).
Progress, status, reports, resume and replay read the journal through `views`, never the tables.
"""
