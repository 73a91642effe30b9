"""What a run compiled: one summary, computed once, and its renderings."""
