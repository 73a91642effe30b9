CASE = {'cause': 'checkpoint_jit',
 'why': 'checkpoint_jit',
 'source': 'found by trial',
 'env': {},
 'expect': {'f': {'of': '<object> f', 'traces': 2, 'lowerings': 2, 'compilations': 2, 'disk_hits': 0}},
 'all': 2,
 'reasons_after_the_first': {'f': ['shape']}}

import collections, functools, jax, numpy as np, jax.numpy as jnp, threading, gc, dataclasses, logging
from functools import partial
from jax.sharding import NamedSharding, PartitionSpec as P
TRACES = collections.Counter()
mark = lambda label: None
X = np.ones(3, np.float32); Y = np.ones(4, np.float32)
@jax.jit
@jax.checkpoint
def f(x): TRACES["f"] += 1; return jnp.sin(jnp.sin(x))
def run():
    f(X); f(X); f(Y)
