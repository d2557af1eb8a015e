"""`/dashboard`: server-rendered pages, without scripts and without a request to anywhere else."""
