CASE = {'cause': 'grad_two_from_factory',
 'why': 'grad_two_from_factory',
 'source': 'found by trial',
 'env': {},
 'expect': {'A': {'of': '<object> A', 'traces': 1, 'lowerings': 2, 'compilations': 2, 'disk_hits': 0},
            'B': {'of': '<object> B', 'traces': 1, 'lowerings': 2, 'compilations': 2, 'disk_hits': 0}},
 'reasons_after_the_first': {'A': ['transform']}}

import collections, functools, jax, numpy as np, jax.numpy as jnp, threading, gc, dataclasses, logging
from functools import partial
from jax.sharding import NamedSharding, PartitionSpec as P
TRACES = collections.Counter()
mark = lambda label: None
X = np.ones(3, np.float32); Y = np.ones(4, np.float32)
def make(k):
    @jax.jit
    def layer(x):
        TRACES[f"layer{k}"] += 1
        return jnp.sin(x) * k
    return layer
A, B = make(2.0), make(3.0)
def loss(x): return B(A(x)).sum()
XJ = jax.device_put(X)
def run():
    jax.grad(loss)(XJ)
    jax.grad(loss)(XJ)
