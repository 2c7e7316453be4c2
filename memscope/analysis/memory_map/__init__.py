"""The allocator's segments and blocks: free memory, fragmentation, and who holds the rest."""
