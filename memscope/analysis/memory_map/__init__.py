"""The allocator's segments and blocks: what is free, how fragmented, who holds the rest."""
