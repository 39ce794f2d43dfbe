"""`tpkd watch`: the live page of a run or a grid."""
