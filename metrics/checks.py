def is_complete(state): return state is not None and state["records"] is not None and state["records"] == state["lines"] - 1 and not state["corrupt"]
def run_checks(p): return []
