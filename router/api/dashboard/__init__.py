"""`/dashboard`: server-rendered pages, without scripts and without requests to other sites."""
