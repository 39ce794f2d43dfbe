"""A process with few files reads a cache of many shards: `cache_many_shards.py DIRECTORY LIMIT SHARDS`.

The limit is set before anything is imported, as `ulimit -n` does.
"""

import os
import resource
import sys


def read_many_shards(directory, limit, shards):
    """Build a cache with a shard per row and read it as the caches of an ensemble; returns the number of open files."""
    import numpy as np
    import torch

    from teacher.cache.toys import Teacher, make_recipe, make_rows, true_logits
    from tpkd.teacher.cache.build import build_cache
    from tpkd.teacher.cache.read import open_cache
    from tpkd.teacher.cache.verify import verify_cache

    os.fsync = lambda descriptor: None  # three for each shard would take most of the time
    rows = make_rows(shards, 1)
    build_cache(directory, rows, Teacher(), make_recipe(), shard_rows=1)
    assert verify_cache(directory).passes
    caches = [open_cache(directory, check=number == 0) for number in range(6)]
    generator = np.random.default_rng(0)
    for _ in range(3):
        for cache in caches:
            chosen = generator.integers(0, shards, 500)
            samples = rows.sample_ids[chosen]
            assert torch.equal(cache.read(samples), true_logits(samples, [0] * 500))
        open_files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        assert open_files < limit
    return open_files


if __name__ == "__main__":
    limit = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    print(read_many_shards(sys.argv[1], limit, int(sys.argv[3])))
