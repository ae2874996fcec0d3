"""The files of a grid's peers: a bounded cache by content, and transfers from many sources.

Lives here: the cache directory that several processes share (`cache`, with `claims` and `uses`),
files on their way in (`partial`), which chunk is asked of whom (`schedule`, pure), one file's
transfer (`transfer`), what peers ask each other (`wire`, `serving`), and the service that puts it
together (`service`, `directories`, `fetcher`).
Does not live here: the network (a `wire.Bulk` is injected) and where copies are (a DHT is
injected as `announce`, `withdraw`, `locate`).
"""
