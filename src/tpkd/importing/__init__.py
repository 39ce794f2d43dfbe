"""`tpkd cache import`: logits that another program computed, as the cache of a teacher."""
