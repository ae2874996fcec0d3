"""The assembly."""
