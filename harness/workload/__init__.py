"""The workload, drawn before the run: who subscribes to what, who comes and goes, and what is published when.

``draw_workload`` (harness.workload.drawing) joins the parts. All of them follow from the experiment and its seed alone,
so that every protocol that is compared meets the same workload.
"""
