"""What events mean: rules that the tables of runs and the observer of simulations share, so that each is written once.

Tables bring the events from files, studies from a simulation in memory. Measures are computed from what comes out.
"""
