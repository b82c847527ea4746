"""One overlay node: its sans-I/O protocol core, its wire format, and the process that drives it."""
