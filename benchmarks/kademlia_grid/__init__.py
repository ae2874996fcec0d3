"""The hash table at work, for its benchmark and its tests: in the simulator (`simulated`), and
over real sockets (`live`, whose processes are `worker`s), where `rival` does the same."""
