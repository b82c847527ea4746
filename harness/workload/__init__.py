"""The workload, drawn before the run: interests, churn and publications.

``draw_workload`` (harness.workload.workload) combines them. The workload depends only on the experiment and its seed,
so that all compared protocols get the same workload.
"""
