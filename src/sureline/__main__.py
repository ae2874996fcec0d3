"""`python -m sureline` is the command `sureline`."""

from sureline.cli.entry import main

main()
