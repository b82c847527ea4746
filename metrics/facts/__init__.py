"""Rules about what events mean. The tables of runs and the observer of simulations share them, so each exists once.

Tables take the events from files, studies take them from a simulation in memory. Measures are computed of the results.
"""
