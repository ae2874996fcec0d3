"""What is to be done: tasks, files and the graph they form.

Lives here: the model (`model`), quantities people write (`quantities`), readers and writers of
workflow files (`yaml_reader`, `yaml_writer`, `wfformat`), the mistakes they report (`mistakes`,
`check`), and shapes of the graph (`shapes`: levels, critical path).
Does not live here: running, time, processes, the network. This room imports no other room; every
other room may import it.
"""
