"""The testbeds: simulated, emulated, remote."""
