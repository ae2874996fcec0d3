"""The contest behind `benchmarks/local.py`: who competes, in what, and how it is measured.

`work` says what the workloads are and what a right answer is; `install` makes an environment for
each rival; `stage` runs one contestant in one workload and measures its whole process tree;
`drive` is the program that runs inside a contestant's interpreter, with one `with_*` module per
contestant; `judge` turns samples into medians, ratios and verdicts; `page` writes them down.

Modules that run inside rivals' interpreters (`work`, `drive`, `with_*`) import nothing but the
standard library and the engine they drive.
"""
