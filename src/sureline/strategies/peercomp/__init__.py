"""Deadline reservations over the aggregation tree, after Celaya and Arronategui.

`queues` is the arithmetic of a machine's promises, `lane` a leaf of the tree made of it, `owner`
the submitting half: a workflow's sequences reserved stage by stage, then committed or rolled back.
"""
