CASE = {'cause': 'nested_path',
 'why': 'nested_path',
 'source': 'found by trial',
 'env': {},
 'expect': {'f': {'of': '<object> f', 'traces': 6, 'lowerings': 6, 'compilations': 6, 'disk_hits': 0}},
 'reasons_after_the_first': {'f': ['shape', 'tree|call_form', 'shape', 'tree|call_form', 'shape']},
 'paths': {'f': ["p['a']['b'][0]", 'rest[0]', 'rest[0]', 'z|kw', "kw['z']"]}}

import collections, functools, jax, numpy as np, jax.numpy as jnp, threading, gc, dataclasses, logging
from functools import partial
from jax.sharding import NamedSharding, PartitionSpec as P
TRACES = collections.Counter()
mark = lambda label: None
X = np.ones(3, np.float32); Y = np.ones(4, np.float32)
@jax.jit
def f(p, *rest, **kw): TRACES["f"] += 1; return p["a"]["b"][0] * 2
def run():
    f({"a": {"b": [X]}}) #@1
    f({"a": {"b": [Y]}}) #@2
    f({"a": {"b": [X]}}, X)
    f({"a": {"b": [X]}}, Y)
    f({"a": {"b": [X]}}, Y, z=X)
    f({"a": {"b": [X]}}, Y, z=Y)
