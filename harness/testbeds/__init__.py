"""Where an experiment runs: simulated, emulated, remote."""
