"""Where agents live: the World protocol, agents, and the worlds themselves.

An agent is plain state plus typed handlers; it owns no clock, no thread, no socket. A world gives
it everything it may do. `protocol` is the contract, `agent` the base of agents, `live` the world
of real time and real processes; what a live world needs (a runner of jobs, a recorder of events,
a store) is injected by the composition root. This room imports no other room.
"""
