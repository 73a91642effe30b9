CASE = {'cause': 'keyboard_interrupt_trace',
 'why': 'keyboard_interrupt_trace',
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
ON = [True]
@jax.jit
def f(x):
    if ON[0]: raise KeyboardInterrupt
    TRACES["f"] += 1
    return x * 2
def run():
    for _ in range(2):
        try: f(X)
        except KeyboardInterrupt: pass
    ON[0] = False; f(X); f(Y)
