"""Events in, entries out: who compiled, whose function, which signature.

One log for the process, its cold start, and the threads that tests leave behind. It imports
``jax_internals``, ``reasons``, ``records`` and ``errors``.
"""
