"""The control plane: the catalogue, compaction, placement, elasticity and observation."""
