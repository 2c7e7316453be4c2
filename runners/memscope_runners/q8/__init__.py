"""Llama-family decoder over int8 weights: checkpoint, tokenizer, product, forward pass."""
