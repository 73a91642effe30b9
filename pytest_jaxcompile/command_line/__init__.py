"""``python -m pytest_jaxcompile``: run a program and report; show, compare and merge reports.

It may import everything but the hooks of pytest.
"""
