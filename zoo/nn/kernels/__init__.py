"""What is there for speed: functions with the results of a textbook formula, up to rounding.

``attention``, ``packed_attention`` and ``row_packing`` serve the backbones, ``dropout`` and
``embedding`` their layers, ``row_sums`` losses over a vocabulary, ``int8_linear`` and
``small_batch_linear`` generation on CPUs. Each module says when its function is faster.
"""
