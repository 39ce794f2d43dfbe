"""A process with few files reads a cache of many shards: `cache_many_shards.py DIRECTORY LIMIT SHARDS`.

The limit is set before anything is imported, as `ulimit -n` does.
"""

import os
import resource
import sys

directory, limit, shards = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

import numpy as np  # noqa: E402
import torch  # noqa: E402

from teacher.cache.toys import Teacher, make_recipe, make_rows, true_logits  # noqa: E402
from tpkd.teacher.cache.build import build_cache  # noqa: E402
from tpkd.teacher.cache.read import open_cache  # noqa: E402
from tpkd.teacher.cache.verify import verify_cache  # noqa: E402

os.fsync = lambda descriptor: None  # three for each shard would take most of the time
rows = make_rows(shards, 1)
build_cache(directory, rows, Teacher(), make_recipe(), shard_rows=1)
assert verify_cache(directory).passes
caches = [open_cache(directory, check=number == 0) for number in range(6)]  # the caches of an ensemble
generator = np.random.default_rng(0)
for _ in range(3):
    for cache in caches:
        chosen = generator.integers(0, shards, 500)
        samples = rows.sample_ids[chosen]
        assert torch.equal(cache.read(samples), true_logits(samples, [0] * 500))
    open_files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert open_files < limit
print(open_files)
