"""Who is who on a grid: its certificate authority, invitations, credentials, revocations.

`home` is the directory in which a machine keeps what it knows of its grids, `disk` how files get
there whole or not at all. `certificates` says what a certificate of ours looks like, `credentials`
turns a home's own into TLS contexts and judges those of others. `authority` exists only in the
home that made the grid: it issues and revokes. `invitation` is the token that a user carries to
a new machine, `enrolment` what the issuer answers to it, `joining` the new machine's side, and
`revocations` the signed list of who is out. Importing this package costs nothing; `cryptography`
is loaded by those modules that need it.
"""
