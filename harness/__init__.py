"""The experimenter's side: experiment files, plans, testbeds, deployment, verdict and command line."""
