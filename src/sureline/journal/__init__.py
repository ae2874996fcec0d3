"""The journal is the truth: typed events, where they are kept, and views of them.

Lives here: event types (`events`), the SQLite store with one fenced writer per run (`store`),
views that fold events into states (`views`), and selectors of runs (`select`).
Does not live here: deciding anything. Imports `workflow` (and the marker types of `world`).
Progress, status, reports, resume and replay read the journal through `views`, never the tables.
"""
