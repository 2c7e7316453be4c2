"""Where weights are kept: devices, buffers, the weight pool and the residency window.

The residency window keeps `keep` of the model's layers on the device. A layer's weights lie in one
buffer, its *slab*; an *entry* is one linear weight of a slab. A *policy* decides which layers are
evicted when another one is needed.
"""
