"""Pictures of runs: drawings of the graph, and the report, one HTML file with nothing outside it.

A face: it decides nothing. It reads graphs and views of the journal, and may import every room
below it.
"""
