"""What a run compiled: one summary, computed once, and its renderings, each summary to text.

It imports ``records`` and nothing else of ours, and neither JAX nor pytest.
"""
