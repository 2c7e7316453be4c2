"""The int8 (q8) forward pass of the Llama family: config, slabs, products, kernels."""
