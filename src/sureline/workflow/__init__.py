"""What is to be done: tasks, files and the graph they form.

Lives here: the model (`model`), quantities people write (`quantities`), readers and writers of
workflow files (`read` chooses; `yaml_reader`, `yaml_writer`, `wfformat`, `wfformat_reader`,
`composition`, `chemical`), the mistakes they report (`mistakes`, `collect`), checking (`check`,
with `resolve`, `paths` and `globs` for files), and shapes of the graph (`shapes`: levels, critical
path).
Does not live here: running, time, processes, the network. This room imports `chemistry` only;
every other room may import it.
"""
