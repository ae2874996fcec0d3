"""How peers without a centre find each other, and find things: agents, in any world.

`kademlia` is the distributed hash table with its broadcast, `ring` keeps molecules under keys and
values in order, `membership` knows who is there and notices who has gone, `tree` sums up what free
time lies below each of its branches. All of them are plain agents: no I/O, no clock of their own.
May import `world` and `compiled` only.
"""
