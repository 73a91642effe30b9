CASE = {'cause': 'pmap_kw_static_two',
 'why': 'pmap_kw_static_two',
 'source': 'found by trial',
 'env': {'XLA_FLAGS': '--xla_force_host_platform_device_count=4'},
 'expect': {'A': {'of': '<object> A', 'traces': 2, 'lowerings': 2, 'compilations': 2, 'disk_hits': 0},
            'B': {'of': '<object> B', 'traces': 1, 'lowerings': 1, 'compilations': 1, 'disk_hits': 0}},
 'all': 3,
 'reasons_after_the_first': {'A': ['static_value']},
 'called': {'A': ['1', '2'], 'B': ['3']}}

import collections, functools, jax, numpy as np, jax.numpy as jnp, threading, gc, dataclasses, logging
from functools import partial
from jax.sharding import NamedSharding, PartitionSpec as P
TRACES = collections.Counter()
mark = lambda label: None
X = np.ones(3, np.float32); Y = np.ones(4, np.float32)
def f(x, k=2): TRACES["f"] += 1; return x * k
A = jax.pmap(f, static_broadcasted_argnums=1); B = jax.pmap(f)
Z = np.ones((4,3), np.float32)
def run():
    A(Z, 2) #@1
    A(Z, 3) #@2
    A(Z, 2)
    B(Z) #@3
