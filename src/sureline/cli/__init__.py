"""The command line: a face, no decisions.

One module per group of commands; each imports what it needs when it runs, so that
`sureline --help` stays quick. `main` maps every failure to one sentence and an exit code:
0 done, 1 a task failed, 2 the user's mistake, 3 terms cannot be or were not met, 130 cancelled.
"""
