"""What a test or a script asks of the log: selection, views, expectations, and what they say.

It imports ``recording``, ``jax_internals``, ``records`` and ``errors``.
"""
