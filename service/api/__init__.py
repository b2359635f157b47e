"""The admin API: aiohttp handlers, the models that validate requests, authentication, problems and OpenAPI."""
