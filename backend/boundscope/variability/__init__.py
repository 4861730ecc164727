"""How much of a network's output is rounding noise: statistics of repeated stochastic inference.

The statistics take samples as numpy arrays and import no torch, so that results can be read and compared anywhere;
`sampling`, which takes the samples, and what is built on it do.

- `moments`: streaming moments of one tensor, the same bits however its samples were spread over ranks
- `moments_file`: the moments of a run in one file, written whole or not at all, from which a run is resumed
- `digits`: significant bits and decimal digits of each element, channel and layer
- `decisions`: whether a decision (argmax) changes, and its margin against the margin's own noise
- `tables`: results as tables, one a level; `tables_files` writes them as CSV or Parquet
- `compare`: two runs, layer by layer
- `inputs`: the points that a network is run on, from files or drawn from a property's box
- `sampling`: samples of an ONNX network under stochastic arithmetic
"""
