"""Kernels for speed: the results of a textbook formula, up to rounding.

Each module says when its function is faster.
"""

import os

# oneDNN generates code for each number of rows, and caches it: 1,024 products in its own cache and
# as many in torch's, which take 2 GB after batches of 600 different lengths. A layer has fewer than
# sixteen products, and the next one has the same. Both sizes are read at the first product.
for _variable in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(_variable, "16")
