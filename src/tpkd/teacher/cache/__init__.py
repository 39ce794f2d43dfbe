"""A teacher that never runs twice: its outputs kept by (sample id, view id), bound to what they were computed from."""

from tpkd.teacher.cache.build import BuildProgress, build_cache
from tpkd.teacher.cache.read import TeacherCache, open_cache
from tpkd.teacher.cache.recipe import CacheRecipe, library_versions
from tpkd.teacher.cache.rows import CacheRows
from tpkd.teacher.cache.verify import CacheInfo, VerifyReport, cache_info, verify_cache

__all__ = [
    "BuildProgress",
    "CacheInfo",
    "CacheRecipe",
    "CacheRows",
    "TeacherCache",
    "VerifyReport",
    "build_cache",
    "cache_info",
    "library_versions",
    "open_cache",
    "verify_cache",
]
