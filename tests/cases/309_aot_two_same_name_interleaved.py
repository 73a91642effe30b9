CASE = {'cause': 'aot_two_same_name_interleaved',
 'why': 'aot_two_same_name_interleaved',
 'source': 'found by trial',
 'env': {},
 'expect': {'A': {'of': '<object> A', 'traces': 1, 'lowerings': 1, 'compilations': 1, 'disk_hits': 0},
            'B': {'of': '<object> B', 'traces': 1, 'lowerings': 1, 'compilations': 1, 'disk_hits': 0}},
 'all': 2,
 'called': {'A': ['a'], 'B': ['b']}}

import collections, functools, jax, numpy as np, jax.numpy as jnp, threading, gc, dataclasses, logging
from functools import partial
from jax.sharding import NamedSharding, PartitionSpec as P
TRACES = collections.Counter()
mark = lambda label: None
X = np.ones(3, np.float32); Y = np.ones(4, np.float32)
def mk(k):
    @jax.jit
    def step(x): TRACES[f"s{k}"] += 1; return x * k
    return step
A, B = mk(2), mk(3)
def run():
    la = A.lower(X); lb = B.lower(X)
    lb.compile() #@b
    la.compile() #@a
