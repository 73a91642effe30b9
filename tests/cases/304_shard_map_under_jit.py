CASE = {'cause': 'shard_map_under_jit',
 'why': 'shard_map_under_jit',
 'source': 'found by trial',
 'env': {'XLA_FLAGS': '--xla_force_host_platform_device_count=4'},
 'expect': {'F': {'of': '<object> F', 'traces': 2, 'lowerings': 2, 'compilations': 2, 'disk_hits': 0},
            'body': {'of': '<object> body', 'traces': 2, 'lowerings': 2, 'compilations': 2, 'disk_hits': 0}},
 'all': 2,
 'reasons_after_the_first': {'F': ['shape']},
 'called': {'F': ['1', '2']}}

import collections, functools, jax, numpy as np, jax.numpy as jnp, threading, gc, dataclasses, logging
from functools import partial
from jax.sharding import NamedSharding, PartitionSpec as P
TRACES = collections.Counter()
mark = lambda label: None
X = np.ones(3, np.float32); Y = np.ones(4, np.float32)
try: from jax import shard_map
except ImportError: from jax.experimental.shard_map import shard_map
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("d",))
def body(x): TRACES["body"] += 1; return x * 2
F = jax.jit(shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P("d")))
def run():
    F(np.ones(8, np.float32)) #@1
    F(np.ones(8, np.float32))
    F(np.ones(12, np.float32)) #@2
