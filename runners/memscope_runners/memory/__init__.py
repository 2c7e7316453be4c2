"""Where the weights are: devices, buffers, the weight pool and the residency window."""
