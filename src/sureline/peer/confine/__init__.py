"""Keeping the tasks of others in their place: what they may see, write, reach and use up.

`rules` says what is allowed; `namespaces` gives a slot process its own view of the machine, once;
`landlock` binds every command to its own directory; `limits` watches what a command uses.
Only slots and those who start them import this. See docs/security.md, and
docs/decisions/0100-sandbox.md for why it is made of these parts.
"""
