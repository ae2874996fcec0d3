"""The half beside a run's writer (`client`), and its parts.

What is asked for (`services`), asking and agreeing (`broker`), the plan at the outset (`outset`),
where a ready task goes (`placing`, `underway`), what is agreed and paid (`money`, `ledger`), how
promises were kept (`trust`), asking after what is late (`examining`), what can be done about it
(`repairer`).
"""
