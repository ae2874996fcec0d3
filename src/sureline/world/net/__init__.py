"""The live world's network: framed messages and bulk data over mutually authenticated TLS."""
