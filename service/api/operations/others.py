"""Calls about signing keys, and what needs no key."""

from __future__ import annotations

from service.api import answers, documents, models, signing_keys
from service.api.calls import Kind, Operation
from service.api.operations.building import change, get, tagged

CALLS: tuple[Operation, ...] = (
    *tagged(
        "signing",
        get(
            "/v1/signing-keys",
            "signing_keys_get",
            "Default secret and public keys",
            signing_keys.get,
            answers.SigningKeys,
            query=models.Page,
        ),
        change(
            "/v1/signing-keys/rotate",
            "signing_keys_rotate",
            "Make a new default secret",
            signing_keys.rotate,
            models.RotateSecret,
            answer=answers.SecretAnswer,
        ),
    ),
    *tagged(
        "documents",
        Operation(
            "GET",
            "/healthz",
            "healthz",
            "Whether the process answers",
            documents.healthz,
            kind=Kind.OPEN,
            answer=answers.Health,
        ),
        Operation("GET", "/openapi.json", "openapi", "This document", documents.openapi, kind=Kind.OPEN),
        Operation("GET", "/docs", "docs", "This document, to browse", documents.page, kind=Kind.OPEN),
        Operation("GET", "/docs/{asset}", "docs_asset", "What the page needs", documents.asset, kind=Kind.OPEN),
    ),
)
