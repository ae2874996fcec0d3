"""Who is who on a grid: its certificate authority, invitations, credentials, revocations."""
