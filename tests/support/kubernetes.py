"""What Kubernetes would say of an object: its schemas (in a wheel), those of other people's kinds, and Pod Security."""

import functools
import importlib.resources
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonschema_rs import Draft202012Validator, ValidationError
from kubernetes_validate.utils import all_versions

Object = dict[str, Any]

VERSIONS = tuple(dict.fromkeys(version.rpartition(".")[0] for version in all_versions()))  # such as 1.37
OTHERS = Path(__file__).parents[1] / "ops" / "schemas"
BUILT_IN = importlib.resources.files("kubernetes_validate") / "kubernetes-json-schema"


def find_problems(one: Object, version: str) -> list[str]:
    """Where an object breaks its kind's schema: unknown fields, missing fields, wrong types."""
    validator = find_validator(one["kind"], one["apiVersion"], version)
    return [f"{one['kind']} {one['metadata']['name']}: {describe(error)}" for error in validator.iter_errors(one)]


@functools.cache
def find_validator(kind: str, api_version: str, version: str) -> Draft202012Validator:
    other = OTHERS / f"{kind}.json"
    if other.exists():
        return Draft202012Validator(json.loads(other.read_text()))
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)  # networking.k8s.io/v1 → networking-v1
    schema = read_schema(version, f"{kind.lower()}-{group}")
    return Draft202012Validator({**schema, "$id": "urn:one", "$defs": read_schema(version, "_definitions")["$defs"]})


@functools.cache
def read_schema(version: str, name: str) -> Any:
    """One schema, its references turned from those between files into those within one."""
    text = (BUILT_IN / f"v{version}.0-local-strict" / f"{name}.json").read_text()
    return json.loads(re.sub(r'"[^"]*_definitions\.json#', '"#', text))


def describe(error: ValidationError) -> str:
    return f"{'.'.join(map(str, error.instance_path))}: {error.message[:300]}"


def list_breaches(pod: Object) -> Iterator[str]:
    """What Pod Security `restricted` (and `baseline` below it) refuses in a pod.

    https://kubernetes.io/docs/concepts/security/pod-security-standards/
    """
    spec = pod["spec"]
    context = spec.get("securityContext", {})
    yield from (name for name in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace") if spec.get(name))
    kinds = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
    yield from (f"volume {one['name']}" for one in spec.get("volumes", ()) if not set(one) - {"name"} <= kinds)
    yield from (name for name in ("sysctls", "seLinuxOptions", "windowsOptions") if context.get(name))
    for container in [*spec["containers"], *spec.get("initContainers", ())]:
        yield from list_container_breaches(container, {**context, **container.get("securityContext", {})})


def list_container_breaches(container: Object, context: Object) -> Iterator[str]:
    if context.get("privileged"):
        yield "privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation"
    if context.get("runAsNonRoot") is not True or context.get("runAsUser") == 0:
        yield "runAsNonRoot"
    if context.get("seccompProfile", {}).get("type") not in {"RuntimeDefault", "Localhost"}:
        yield "seccompProfile"
    capabilities = context.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", ()) or set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
        yield "capabilities"
    if any("hostPort" in port for port in container.get("ports", ())):
        yield "hostPort"
    if context.get("procMount", "Default") != "Default":
        yield "procMount"
