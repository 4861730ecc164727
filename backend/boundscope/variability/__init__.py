"""How much of a network's output is rounding noise: statistics of repeated stochastic inference.

Modules here take samples as numpy arrays and import no torch, so that results can be read and compared anywhere.

- `moments`: streaming moments of one tensor, the same bits however its samples were spread over ranks
- `moments_file`: the moments of a run in one file, written whole or not at all, from which a run is resumed
- `digits`: significant bits and decimal digits of each element, channel and layer
- `decisions`: whether a decision (argmax) changes, and its margin against the margin's own noise
- `tables`: results as tables, one a level; `tables_files` writes them as CSV or Parquet
- `compare`: two runs, layer by layer
"""
