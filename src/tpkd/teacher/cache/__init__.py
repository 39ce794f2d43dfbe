"""A teacher that never runs twice: its outputs kept by (sample id, view id), bound to what they were computed from."""

from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.merge import merge_parts
from tpkd.teacher.cache.parts import Part
from tpkd.teacher.cache.read import TeacherCache, open_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows
from tpkd.teacher.cache.verify import cache_info, verify_cache

__all__ = [
    "CacheRecipe",
    "CacheRows",
    "Part",
    "TeacherCache",
    "build_cache",
    "cache_info",
    "merge_parts",
    "open_cache",
    "verify_cache",
]
