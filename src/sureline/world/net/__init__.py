"""Nodes of a grid talk here: TLS 1.3 with certificates on both sides, MessagePack within.

`transport` is what others use: `NetTransport.listen`, `send`, `ask_bulk`, `close`. From the wire
inwards: `door` counts who has connected but not greeted, `tls` encrypts, `opening` finds out who
it is and greets, `stranger` serves those without a certificate, `link` carries messages, `route`
keeps what waits for one destination, `dialler` calls others, `ways` finds a way to those who cannot
be dialled, `relay` carries for others, `moorings` keeps us within reach, `reaching` joins these and
`control` has their words, `codec` turns messages into bytes and back, `bulk_*` moves large bodies
over connections of their own, and `limits` has every bound. What the network needs from elsewhere
(credentials, handlers) is in `interfaces`.

Agents never see any of this: `world.live` hands their messages over.
"""
