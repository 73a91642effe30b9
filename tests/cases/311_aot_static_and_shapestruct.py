CASE = {'cause': 'aot_static_and_shapestruct',
 'why': 'aot_static_and_shapestruct',
 'source': 'found by trial',
 'env': {},
 'expect': {'f': {'of': '<object> f', 'traces': 3, 'lowerings': 3, 'compilations': 3, 'disk_hits': 0}},
 'all': 3,
 'reasons_after_the_first': {'f': ['static_value', 'shape']},
 'paths': {'f': ['k', "p['w']"]}}

import collections, functools, jax, numpy as np, jax.numpy as jnp, threading, gc, dataclasses, logging
from functools import partial
from jax.sharding import NamedSharding, PartitionSpec as P
TRACES = collections.Counter()
mark = lambda label: None
X = np.ones(3, np.float32); Y = np.ones(4, np.float32)
@partial(jax.jit, static_argnames='k')
def f(p, k): TRACES["f"] += 1; return p["w"] * k
S = lambda n: {"w": jax.ShapeDtypeStruct((n,), np.float32)}
def run():
    c = f.lower(S(3), k=2).compile(); c({"w": X})
    f.lower(S(3), k=3).compile()
    f.lower(S(4), k=3).compile()
