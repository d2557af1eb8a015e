"""Wire formats, one file each: pure, without I/O. Of lowpass they import only `router.types` and `router.errors`."""
