"""First programs on modelled boards: what learning adds where neither board nor network taught."""
