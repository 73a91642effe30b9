CASE = {'cause': 'nested_failed_trace_caught',
 'why': 'nested_failed_trace_caught',
 'source': 'found by trial',
 'env': {},
 'expect': {'outer': {'of': '<object> outer', 'traces': 2, 'lowerings': 2, 'compilations': 2, 'disk_hits': 0},
            'inner': {'of': '<object> inner', 'traces': 1, 'lowerings': 1, 'compilations': 1, 'disk_hits': 0}},
 'all': 3,
 'reasons_after_the_first': {'outer': ['shape']}}

import collections, functools, jax, numpy as np, jax.numpy as jnp, threading, gc, dataclasses, logging
from functools import partial
from jax.sharding import NamedSharding, PartitionSpec as P
TRACES = collections.Counter()
mark = lambda label: None
X = np.ones(3, np.float32); Y = np.ones(4, np.float32)
ON = {"on": True}
@jax.jit
def inner(x):
    TRACES["inner_runs"] += 1
    if ON["on"]: raise ValueError("no")
    return x + 1
@jax.jit
def outer(x):
    TRACES["outer"] += 1
    try: y = inner(x)
    except ValueError: y = x
    return y * 2
def run():
    outer(X); outer(Y); ON["on"] = False; inner(X)
