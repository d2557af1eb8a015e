"""Wire formats: one file each. They know `router.types` and `router.errors`, nothing else of lowpass; pure, no I/O."""
