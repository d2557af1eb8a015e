"""Steps 1, 2 and 8: the HTTP edge. Hot routes are one ASGI function; everything else is FastAPI behind it."""
