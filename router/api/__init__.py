"""Steps 1, 2 and 8: HTTP. The model routes are one ASGI function; everything else is FastAPI behind it."""
