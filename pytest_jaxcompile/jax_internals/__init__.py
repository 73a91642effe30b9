"""All that is read of JAX: the one door to what JAX keeps private.

Listeners, log records, frames of JAX's calls, its caches and contexts, and the check that names
what a JAX release renamed. It imports ``errors`` and nothing else of ours.
"""
