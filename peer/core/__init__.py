"""The sans-I/O protocol cores. No clock, socket, global random generator, logger or file in here."""
