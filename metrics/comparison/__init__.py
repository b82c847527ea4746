"""Comparison of analysed runs: groups of runs, and what differs between them by more than noise.

Runs whose resolved experiments differ only in the seed are samples of one group (``groups``). A measure's value in a
group is the mean over its runs with an interval (``metrics.intervals``). If a group has a single run, the interval
comes from resampling the messages of that run (``resampling``). ``differences`` compares every group with the baseline,
``conditions`` judges ``--fail-if``, ``documents`` are CSV and JSON. ``metrics.report.comparison`` makes the page.
"""
