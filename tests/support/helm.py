"""The chart as Helm sees it: the engine from a wheel, the objects it renders, and the cases in `ci/`."""

import functools
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import helm_python
import yaml

from tests.support.chart import CHART

RELEASE, NAMESPACE = "hooks", "prod"
PREFIX = f"{RELEASE}-webhookd"
OVERRIDDEN = "delivery"  # ci/placement.yaml

Object = dict[str, Any]


def render(values: Object | None = None, **options: Any) -> list[Object]:
    """Every object of a release, hooks included. Raises helm_python.HelmError for values that are refused."""
    return read_objects(
        "\n---\n".join(text for name, text in render_texts(values, **options).items() if is_manifest(name))
    )


def render_texts(values: Object | None = None, **options: Any) -> dict[str, str]:
    """What Helm writes, by template."""
    chart = load_chart()
    chart.validate_schema(values or {})
    return chart.render(values or {}, name=RELEASE, namespace=NAMESPACE, **options)


def render_by_command(command: str, values_file: Path) -> list[Object]:
    """The same by a `helm` on this machine; one that `go install` made takes Kubernetes for an ancient one unless told."""
    arguments = [command, "template", RELEASE, CHART, "-n", NAMESPACE, "-f", values_file, "--kube-version", "1.37.0"]
    return read_objects(subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=60).stdout)


def lint(values: Object, **options: Any) -> list[str]:
    """What `helm lint --strict` has to say."""
    report = helm_python.lint(CHART, values, strict=True, namespace=NAMESPACE, **options)
    return [*report["errors"], *(f"{one['path']}: {one['error']}" for one in report["messages"] if one["severity"] > 1)]


@functools.cache
def load_chart() -> helm_python.Chart:
    return helm_python.Chart.load(CHART)


@functools.cache
def list_cases() -> Mapping[str, Object]:
    """The values files of `ci/` by name."""
    return {path.stem: yaml.safe_load(path.read_text()) for path in sorted((CHART / "ci").glob("*.yaml"))}


def read_objects(text: str) -> list[Object]:
    return [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]


def is_manifest(template: str) -> bool:
    return template.endswith(".yaml")


def of_kind(objects: list[Object], kind: str) -> dict[str, Object]:
    """The objects of one kind by name, without the prefix that all share."""
    return {short_name(one): one for one in objects if one["kind"] == kind}


def short_name(one: Object) -> str:
    return re.sub(rf"^({PREFIX}|{OVERRIDDEN})-?", "", one["metadata"]["name"])


def list_pods(objects: list[Object]) -> dict[str, Object]:
    """Every pod or pod template, the hooks' too, as `kind/name` → {metadata, spec}."""
    return {
        f"{one['kind']}/{short_name(one)}": one if one["kind"] == "Pod" else one["spec"]["template"]
        for one in objects
        if one["kind"] in {"Deployment", "Job", "Pod"}
    }


def is_hook(one: Object) -> bool:
    return "helm.sh/hook" in one["metadata"].get("annotations", {})


def selects(selector: Mapping[str, str], pod: Object) -> bool:
    return bool(selector) and selector.items() <= pod["metadata"]["labels"].items()


def list_references(pod: Object) -> Iterator[tuple[str, str]]:
    """Kind and name of every object that a pod cannot start without."""
    spec = pod["spec"]
    for container in spec["containers"]:
        for source in container.get("envFrom", ()):
            yield "ConfigMap", source["configMapRef"]["name"]
    for volume in spec.get("volumes", ()):
        for source in (volume, *volume.get("projected", {}).get("sources", ())):
            if "secret" in source:
                yield "Secret", source["secret"].get("secretName") or source["secret"]["name"]
            if "configMap" in source:
                yield "ConfigMap", source["configMap"]["name"]
    if "serviceAccountName" in spec:
        yield "ServiceAccount", spec["serviceAccountName"]
    for secret in spec.get("imagePullSecrets", ()):
        yield "Secret", secret["name"]


def list_leaves(values: Object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Path and default of what a person may set: all that is no further mapping, and empty mappings."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from list_leaves(value, (*path, name))
        else:
            yield (*path, name), value


def merge(*layers: Object) -> Object:
    """As Helm merges values files: mappings key by key, the last wins."""
    merged: Object = {}
    for layer in layers:
        for name, value in layer.items():
            both = isinstance(value, dict) and isinstance(merged.get(name), dict)
            merged[name] = merge(merged[name], value) if both else value
    return merged


def with_value(values: Object, path: tuple[str, ...], value: Any) -> Object:
    """A copy of `values` in which one is another."""
    for name in reversed(path):
        value = {name: value}
    return merge(values, value)
