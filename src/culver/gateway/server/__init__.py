"""The gateway's own server: uvicorn with bounds against hostile clients."""
