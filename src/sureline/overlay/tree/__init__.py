"""A balanced binary tree of peers that knows, at every branch, what free time lies below it."""
