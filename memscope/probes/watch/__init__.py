"""A program's models and optimizers: steps, layers, weights, gradients, KV caches."""
