"""Why a function was compiled again: two signatures in, ranked differences and advice out.

Pure code over records: no JAX, no pytest. It imports ``records`` and nothing else of ours.
"""
