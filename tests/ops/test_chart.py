"""The chart under the real Helm engine: valid for Kubernetes, strict, in step with the code, and nothing in it unused."""

import argparse
import contextlib
import functools
import os
import re
import shutil
from base64 import b64decode
from ipaddress import ip_network

import helm_python
import pytest
import yaml

import service
from service.config import MIGRATE, SERVE, ConfigError, load_configuration, parse_duration
from service.config.loading import SECRETS
from service.domain.addresses import METADATA, PUBLIC_V6, SPECIAL_V4, SPECIAL_V6
from service.ops import CHECK_SECONDS, OpsApp
from service.serving import add_arguments
from service.telemetry import QueueState, Telemetry
from tests.support import chart as made
from tests.support.chart import CHART
from tests.support.helm import (
    NAMESPACE,
    PREFIX,
    is_hook,
    lint,
    list_cases,
    list_leaves,
    list_pods,
    list_references,
    load_chart,
    merge,
    of_kind,
    render,
    render_by_command,
    render_texts,
    selects,
    with_value,
)
from tests.support.kubernetes import VERSIONS, find_problems, list_breaches

CASES = list_cases()
RENDERED = {name: render(values) for name, values in CASES.items()}
OLDEST = next(version for version in VERSIONS if int(version.partition(".")[2]) >= 30)  # as Chart.yaml says
PODS = {(case, name): pod for case, objects in RENDERED.items() for name, pod in list_pods(objects).items()}
SERVING = {at: pod for at, pod in PODS.items() if at[1].startswith("Deployment/")}
HELM = [path for path in os.environ.get("HELM_COMMANDS", "").split(":") if path] or filter(None, [shutil.which("helm")])

each_case = pytest.mark.parametrize("case", CASES)
each_pod = pytest.mark.parametrize("at", PODS, ids="-".join)
each_serving_pod = pytest.mark.parametrize("at", SERVING, ids="-".join)

PLAUSIBLE = {
    "DATABASE_URL": "postgresql://webhookd:pw@db.example:5432/webhookd",
    "DATABASE_LISTEN_URL": "postgresql://webhookd:pw@primary.example:5432/webhookd",
    "ENCRYPTION_KEYS": "k1:" + "A" * 43 + "=",
    "OPERATOR_KEY": "0123456789abcdef0123456789abcdef",
    "KAFKA_SASL_PASSWORD": "pw",
    "KAFKA_SASL_TOKEN": "token",
    "EGRESS_PROXY": "http://proxy.example:3128",
}


def container_of(pod):
    (container,) = pod["spec"]["containers"]
    return container


def settings_of(case, pod, directory):
    """The environment that a container of `pod` starts with, mounted files put under `directory`."""
    container = container_of(pod)
    maps = {one["metadata"]["name"]: one["data"] for one in RENDERED[case] if one["kind"] == "ConfigMap"}
    environ = {}
    for source in container.get("envFrom", ()):
        environ |= maps[source["configMapRef"]["name"]]
    environ |= {one["name"]: one["value"] for one in container.get("env", ())}
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    for name, value in environ.items():
        if value.startswith("/etc/webhookd/"):
            assert any(value.startswith(mount) for mount in mounts), f"{name} names a file that no volume holds"
            path = directory / name
            setting = name.removeprefix("WEBHOOKD_").removesuffix("_FILE")
            path.mkdir() if setting == "PROFILES_DIR" else path.write_text(PLAUSIBLE.get(setting, "pem"))
            environ[name] = str(path)
    return environ


# --- valid ---


@each_case
def test_lint_has_nothing_to_say(case):
    assert lint(CASES[case]) == []


@pytest.mark.parametrize("version", [OLDEST, *VERSIONS[-3:]])
def test_every_object_fits_the_schemas_of_kubernetes_and_of_the_operators(version):
    distinct = {repr(one): one for objects in RENDERED.values() for one in objects}
    assert [problem for one in distinct.values() for problem in find_problems(one, version)] == []
    assert {one["kind"] for one in distinct.values()} >= {
        *("Deployment", "Service", "Job", "Pod", "ConfigMap", "Secret", "ServiceAccount", "Ingress", "HTTPRoute"),
        *("HorizontalPodAutoscaler", "ScaledObject", "PodDisruptionBudget", "NetworkPolicy"),
        *("ServiceMonitor", "PodMonitor", "PrometheusRule"),
    }


def test_the_schemas_refuse_what_is_wrong():
    pod = of_kind(RENDERED["split"], "Deployment")["api"]
    assert find_problems(with_value(pod, ("spec", "replcas"), 1), VERSIONS[-1])
    monitor = of_kind(RENDERED["monitoring"], "ServiceMonitor")[""]
    assert find_problems(with_value(monitor, ("spec", "endpoint"), []), VERSIONS[-1])


def test_the_chart_says_which_kubernetes_it_needs():
    needed = yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"]
    assert re.fullmatch(r">=1\.30\.0-0", needed)  # `sleep` in preStop is on by default from there


def test_names_are_unique_and_in_the_release():
    for objects in RENDERED.values():
        names = [(one["kind"], one["metadata"]["namespace"], one["metadata"]["name"]) for one in objects]
        assert len(set(names)) == len(names)
        assert {one["metadata"]["namespace"] for one in objects} <= {NAMESPACE, "monitoring"}


if HELM := list(HELM):  # the command itself, where a machine has it: HELM_COMMANDS=/path/helm3:/path/helm4

    @pytest.mark.parametrize("command", HELM)
    @each_case
    def test_the_command_renders_the_same(command, case):
        found = render_by_command(command, CHART / "ci" / f"{case}.yaml")
        assert sorted(map(repr, found)) == sorted(map(repr, RENDERED[case]))


# --- the same twice ---


@each_case
def test_f74_the_same_values_render_the_same(case):
    texts = render_texts(CASES[case])
    assert render_texts(CASES[case]) == texts
    assert render_texts(CASES[case], is_upgrade=True, is_install=False, revision=7) == texts


def test_no_template_asks_for_chance_time_or_the_cluster():
    forbidden = r"\b(rand\w+|shuffle|now|date\w*|uuidv4|gen\w+|derivePassword|htpasswd|bcrypt|lookup|getHostByName|env|Revision)\b"
    for path in (CHART / "templates").rglob("*.*"):
        actions = " ".join(re.findall(r"\{\{(?!/\*|- /\*).*?\}\}", path.read_text(), flags=re.DOTALL))
        assert not re.findall(forbidden, re.sub(r'"[^"]*"', "", actions)), path.name


# --- values ---


def test_unknown_keys_are_refused_everywhere():
    def open_objects(schema, at="values"):
        if "properties" in schema and schema.get("additionalProperties") is not False and "if" not in at:
            yield at
        for name, inner in schema.items():
            if isinstance(inner, dict):
                yield from open_objects(inner, f"{at}.{name}")

    assert list(open_objects(load_chart().schema)) == []
    for path in [("nosuch",), ("image", "nosuch"), ("pod", "probes", "startup", "nosuch"), ("settings", "NOSUCH")]:
        with pytest.raises(helm_python.HelmValuesError, match=r"(?i)nosuch"):
            render(with_value(CASES["minimal"], path, 1))


@pytest.mark.parametrize("name", sorted({name.upper() for name in SECRETS} | {"CA_FILE", "API_PORT", "DATA_DIR"}))
def test_settings_take_no_secrets_and_nothing_that_has_a_value_of_its_own(name):
    with pytest.raises(helm_python.HelmValuesError, match=name):
        render(with_value(CASES["minimal"], ("settings", name), "x"))


def test_a_missing_secret_is_refused_by_name():
    with pytest.raises(helm_python.HelmRenderError, match=r"secrets\.DATABASE_URL: set existingSecret or value"):
        render({})
    with pytest.raises(helm_python.HelmRenderError, match=r"secrets\.OPERATOR_KEY: has a value and an existingSecret"):
        render(merge(CASES["own-secret"], {"secrets": {"OPERATOR_KEY": {"existingSecret": "x"}}}))


@pytest.mark.parametrize("section", ["ingress", "httpRoute"])
def test_a_way_in_needs_a_name(section):
    with pytest.raises(helm_python.HelmValuesError):
        render(merge(CASES["minimal"], {section: {"enabled": True}}))


def test_a_chart_of_charts_may_hold_this_one():
    render({**CASES["minimal"], "global": {"anything": 1}})


DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
# What to set a value to where a suffix, a sum or an entry more would not do.
OTHER = {
    "image.digest": "sha256:" + "0" * 64,
    "image.pullPolicy": "Never",
    "settings.DRAIN_TIMEOUT": "40s",
    "profiles": {"other.toml": "x = 1"},
    "otel": {"OTEL_SERVICE_NAME": "other"},
    "extraEnv": [{"name": "OTHER"}],
    "pod.autoscaling.behavior": {"scaleUp": {"stabilizationWindowSeconds": 1}},
    "pod.autoscaling.cpu": 50,
    "service.type": "LoadBalancer",
    "monitor.kind": "PodMonitor",
    "monitor.interval": "77s",
    "monitor.scrapeTimeout": "7s",
    "networkPolicy.kafka.ports": [1],
    "networkPolicy.public.except": ["9.9.9.0/24"],
    "networkPolicy.public.except6": ["2620:fe::/48"],
    **{f"components.{name}": {"priorityClassName": "other"} for name in ("all", "api", "ingest", "deliver")},
}
MOST = merge(
    *(CASES[name] for name in ("autoscaling", "network", "ingress", "gateway", "files", "placement")),
    {"components": {"ingest": {"autoscaling": {"cpu": 60}}}},
)
BASES = (CASES["minimal"], MOST, *(CASES[name] for name in ("own-secret", "keda", "network-proxy", "monitoring")))


def alternatives(path, value):
    """What to try instead of a value; a list may be one of names or one of objects."""
    if (name := ".".join(path)) in OTHER:
        return [OTHER[name]]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, list):
        return [["other"], [{"name": "other"}], [{"podSelector": {}}]]
    if isinstance(value, dict):
        return [{"other": "other"}]
    return [value + 1 if isinstance(value, int) else f"{value}other"]


def test_every_value_is_used():
    usual = [render_texts(base) for base in BASES]

    def is_used(path, value):
        return any(differs(base, texts, path, value) for base, texts in zip(BASES, usual, strict=True))

    def differs(base, texts, path, value):
        given = functools.reduce(lambda values, name: values.get(name, {}), path[:-1], base).get(path[-1], value)
        for other in alternatives(path, given):
            with contextlib.suppress(helm_python.HelmError):
                if render_texts(with_value(base, path, other)) != texts:
                    return True
        return False

    assert [".".join(path) for path, value in list_leaves(DEFAULTS) if not is_used(path, value)] == []


def test_every_value_is_set_in_some_case():
    def is_set(path):
        return any(holds(values, path) for values in CASES.values())

    def holds(values, path):
        others = [("components", name, *path[1:]) for name in ("all", "api", "ingest", "deliver")]
        return any(reaches(values, each) for each in ([path, *others] if path[0] == "pod" else [path]))

    def reaches(values, path):
        return not path or (isinstance(values, dict) and path[0] in values and reaches(values[path[0]], path[1:]))

    assert [".".join(path) for path, _ in list_leaves(DEFAULTS) if not is_set(path)] == []


def test_every_value_has_a_sentence_and_the_table_tells_it():
    told = {path for path, _, _ in made.list_values()}
    silent = [
        path for path, _ in list_leaves(DEFAULTS) if not any(path[:size] in told for size in range(1, len(path) + 1))
    ]
    assert silent == []


def test_what_is_made_from_something_else_is_up_to_date():
    stale = [str(path) for path, text in made.made_files().items() if not path.exists() or path.read_text() != text]
    assert stale + made.list_strays() == [], "run: python -m tests.support.chart"


def test_versions_agree():
    metadata = load_chart().metadata
    assert metadata["version"] == metadata["appVersion"] == service.__version__


# --- in step with the code ---


@each_serving_pod
def test_the_code_accepts_the_settings_of_every_pod(at, tmp_path):
    case, _ = at
    environ = settings_of(case, PODS[at], tmp_path)
    configuration = load_configuration(environ, needs=SERVE)
    container = container_of(PODS[at])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["ops"] == configuration.settings.ops_port
    assert ports.get("http", configuration.settings.api_port) == configuration.settings.api_port
    given = {name.upper() for name in CASES[case].get("settings", {})} | {"DRAIN_TIMEOUT"}
    assert {name for name in given if f"WEBHOOKD_{name}" not in environ} == set()


def test_the_code_would_refuse_a_wrong_name(tmp_path):
    environ = settings_of("minimal", PODS["minimal", "Deployment/all"], tmp_path)
    with pytest.raises(ConfigError, match="WEBHOOKD_LOG_LEVLE"):
        load_configuration({**environ, "WEBHOOKD_LOG_LEVLE": "info"})


@pytest.mark.parametrize("case", [case for case in CASES if of_kind(RENDERED[case], "Job")])
def test_the_code_accepts_the_settings_of_the_migration(case, tmp_path):
    pod = PODS[case, "Job/migrate"]
    configuration = load_configuration(settings_of(case, pod, tmp_path), needs=MIGRATE)
    assert configuration.settings.database_url.get_secret_value() == PLAUSIBLE["DATABASE_URL"]
    assert container_of(pod)["args"] == ["migrate"]


@each_serving_pod
def test_arguments_are_the_command_lines(at):
    command, *rest = container_of(PODS[at])["args"]
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    roles = parser.parse_args(rest).role
    assert command == "serve"
    assert roles == (None if at[1] == "Deployment/all" else [at[1].removeprefix("Deployment/")])


def test_split_roles_are_all_roles():
    assert set(of_kind(RENDERED["split"], "Deployment")) == {"api", "ingest", "deliver"}
    assert set(of_kind(RENDERED["split-without-kafka"], "Deployment")) == {"api", "deliver"}
    assert set(of_kind(RENDERED["minimal"], "Deployment")) == {"all"}


@each_serving_pod
def test_probes_ask_what_the_ops_port_answers(at):
    container = container_of(PODS[at])
    routes = {route.resource.canonical for route in OpsApp(None, None, None, {}).build().router.routes()}
    probes = {name: container[f"{name}Probe"] for name in ("startup", "liveness", "readiness")}
    paths = {name: probe["httpGet"]["path"] for name, probe in probes.items()}
    assert paths == {
        "startup": "/livez",
        "liveness": "/livez",
        "readiness": "/readyz",
    }  # dependencies never fail liveness
    assert set(paths.values()) <= routes
    assert {probe["httpGet"]["port"] for probe in probes.values()} == {"ops"}
    assert probes["readiness"]["timeoutSeconds"] > CHECK_SECONDS


@each_serving_pod
def test_the_grace_period_is_above_the_drain_budget(at):
    pod = PODS[at]
    drain = parse_duration(CASES[at[0]].get("settings", {}).get("DRAIN_TIMEOUT", "25s")).total_seconds()
    pause = container_of(pod).get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    # lifecycle: 3 s to hand back; API: 3 s; pool, ops port: 2 s each
    assert pod["spec"]["terminationGracePeriodSeconds"] >= pause + drain + 5 + 5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("25s", 25), ("1m30s", 90), ("250ms", 1), (25, 25), ("1.5s", 2), ("0s", 0), ("10m", 600), ("2M", 120)],
)
def test_the_chart_reads_durations_as_the_code_does(text, seconds):
    objects = render(merge(CASES["minimal"], {"settings": {"DRAIN_TIMEOUT": str(text).lower()}}))
    grace = of_kind(objects, "Deployment")["all"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace == 5 + seconds + 15
    assert parse_duration(text).total_seconds() <= seconds


def test_scaling_asks_for_metrics_that_exist():
    telemetry = Telemetry(request_timeout=parse_duration("15s"), retry_schedule=[parse_duration("5s")])
    telemetry.publish_queue(QueueState())
    exposed = telemetry.render()[0].decode()
    asked = {
        name
        for case in ("autoscaling", "keda", "keda-one")
        for kind in ("HorizontalPodAutoscaler", "ScaledObject")
        for one in of_kind(RENDERED[case], kind).values()
        for name in re.findall(r"webhookd_[a-z_]+", repr(one["spec"].get("metrics", one["spec"].get("triggers"))))
    }
    assert asked == {"webhookd_consumer_records_behind", "webhookd_oldest_due_seconds"}
    assert all(f"# TYPE {name} gauge" in exposed for name in asked)


def test_what_is_scaled_states_no_replicas_and_has_one_scaler():
    for case, objects in RENDERED.items():
        scalers = [*of_kind(objects, "HorizontalPodAutoscaler").values(), *of_kind(objects, "ScaledObject").values()]
        targets = [one["spec"]["scaleTargetRef"]["name"].removeprefix(f"{PREFIX}-") for one in scalers]
        assert len(set(targets)) == len(targets), case
        for name, deployment in of_kind(objects, "Deployment").items():
            assert ("replicas" in deployment["spec"]) == (name not in targets), case
    assert set(of_kind(RENDERED["keda"], "ScaledObject")) == {"ingest", "deliver"}
    assert set(of_kind(RENDERED["keda"], "HorizontalPodAutoscaler")) == {"api"}
    assert set(of_kind(RENDERED["autoscaling"], "HorizontalPodAutoscaler")) == {"api", "ingest", "deliver"}


def test_a_scaler_without_a_metric_is_refused():
    values = merge(CASES["minimal"], {"pod": {"autoscaling": {"enabled": True, "cpu": 0}}})
    with pytest.raises(helm_python.HelmRenderError, match="autoscaling of all has no metric"):
        render(values)


# --- strict ---


@each_pod
def test_pod_security_restricted_lets_every_pod_in(at):
    assert list(list_breaches(PODS[at])) == []


def test_the_pod_security_check_finds_breaches():
    pod = PODS["minimal", "Deployment/all"]
    container = container_of(pod)
    without = {
        **pod,
        "spec": {**pod["spec"], "securityContext": {}, "containers": [{**container, "securityContext": {}}]},
    }
    assert set(list_breaches(without)) == {"allowPrivilegeEscalation", "runAsNonRoot", "seccompProfile", "capabilities"}


@each_pod
def test_pods_have_no_token_no_links_and_nothing_to_write_but_tmp(at):
    spec = PODS[at]["spec"]
    container = container_of(PODS[at])
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert [mount["mountPath"] for mount in container.get("volumeMounts", ()) if not mount.get("readOnly")] in (
        [],
        ["/tmp"],
    )
    assert container["resources"]["limits"]["memory"] and container["resources"]["requests"]["cpu"]


def test_users_and_groups_can_be_left_to_the_platform():
    context = PODS["openshift", "Deployment/all"]["spec"]["securityContext"]
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & set(context)
    assert PODS["minimal", "Deployment/all"]["spec"]["securityContext"]["runAsUser"] == 10001


def test_service_accounts_hand_out_no_token():
    accounts = [one for objects in RENDERED.values() for one in of_kind(objects, "ServiceAccount").values()]
    assert accounts and not any(one["automountServiceAccountToken"] for one in accounts)
    assert not [one for objects in RENDERED.values() for one in objects if "Role" in one["kind"]]


# --- secrets ---


def test_secrets_are_in_secrets_and_nowhere_else():
    canaries = [entry["value"] for name, entry in CASES["own-secret"]["secrets"].items() if name != "version"]
    assert len(canaries) == len(SECRETS)
    secrets = {one["metadata"]["name"]: one["data"] for one in RENDERED["own-secret"] if one["kind"] == "Secret"}
    assert {b64decode(text).decode() for text in secrets[PREFIX].values()} == set(canaries)
    texts = render_texts(CASES["own-secret"])
    for name, text in texts.items():
        if not name.endswith(("/secret.yaml", "/migration.yaml")):
            assert "canary" not in text and "Y2FuYXJ5" not in text, name
    rest = [one for one in RENDERED["own-secret"] if one["kind"] != "Secret"]
    assert not any(secret in repr(rest) for data in secrets.values() for secret in (*data.values(), "canary"))


def test_every_secret_can_come_from_a_secret_that_exists():
    objects = RENDERED["existing-secrets"]
    assert of_kind(objects, "Secret") == {}
    for name, pod in list_pods(objects).items():
        sources = [
            one for volume in pod["spec"].get("volumes", ()) for one in volume.get("projected", {}).get("sources", ())
        ]
        found = {
            item["path"]: (one["secret"]["name"], item["key"]) for one in sources for item in one["secret"]["items"]
        }
        if name.startswith("Deployment/"):
            assert found == {
                "DATABASE_URL": ("webhookd-db-app", "uri"),
                "DATABASE_LISTEN_URL": ("webhookd-db-direct", "uri"),
                "ENCRYPTION_KEYS": ("webhookd-keys", "keys"),
                "OPERATOR_KEY": ("webhookd", "operator-key"),
                "KAFKA_SASL_PASSWORD": ("kafka-user", "password"),
                "KAFKA_SASL_TOKEN": ("webhookd", "kafka-token"),
                "EGRESS_PROXY": ("webhookd", "proxy"),
            }
    (volume,) = [one for one in PODS["existing-secrets", "Job/migrate"]["spec"]["volumes"] if one["name"] == "secrets"]
    assert volume["secret"]["secretName"] == "webhookd-db-direct"  # past the pooler
    assert volume["secret"]["items"] == [{"key": "uri", "path": "DATABASE_URL"}]


@each_case
def test_pods_start_from_what_exists_by_then(case):
    objects = RENDERED[case]
    here = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    for name, pod in list_pods(objects).items():
        for reference in list_references(pod):
            ours = reference[1].startswith(PREFIX)
            assert not ours or reference in here, f"{name} needs {reference}"
            if name.startswith("Job/") and ours:
                annotations = here[reference]["metadata"]["annotations"]
                assert annotations["helm.sh/hook"] == "pre-install,pre-upgrade"
                assert int(annotations["helm.sh/hook-weight"]) < 0


def test_the_migration_is_a_hook_and_may_run_again():
    for case, objects in RENDERED.items():
        if CASES[case].get("migration", {}).get("enabled", True):
            annotations = of_kind(objects, "Job")["migrate"]["metadata"]["annotations"]
            assert annotations["helm.sh/hook"] == "pre-install,pre-upgrade"
            assert "before-hook-creation" in annotations["helm.sh/hook-delete-policy"]
        else:
            assert not of_kind(objects, "Job")


# --- changes roll out ---


def template_of(values):
    (deployment,) = of_kind(render(values), "Deployment").values()
    return deployment["spec"]["template"]


@pytest.mark.parametrize(
    ("case", "change"),
    [
        ("minimal", {"settings": {"LOG_LEVEL": "debug"}}),
        ("minimal", {"secrets": {"version": "2"}}),
        ("own-secret", {"secrets": {"OPERATOR_KEY": {"value": "another-operator-key-of-32-letters"}}}),
        ("files", {"profiles": {"mine.toml": "[profile]\nname = 'mine'\n"}}),
        ("minimal", {"otel": {"OTEL_SERVICE_NAME": "hooks"}}),
    ],
)
def test_a_changed_secret_or_setting_changes_the_pods(case, change):
    assert template_of(merge(CASES[case], change)) != template_of(CASES[case])


def test_other_changes_restart_nothing():
    change = {"service": {"annotations": {"a": "b"}}, "rules": {"enabled": True}, "pod": {"replicas": 5}}
    assert template_of(merge(CASES["minimal"], change)) == template_of(CASES["minimal"])


# --- who reaches whom ---


@each_case
def test_selectors_select_what_they_mean(case):
    objects = RENDERED[case]
    pods = {name.removeprefix("Deployment/"): pod for name, pod in list_pods(objects).items() if "Deployment/" in name}
    for name, one in of_kind(objects, "Deployment").items():
        assert [each for each, pod in pods.items() if selects(one["spec"]["selector"]["matchLabels"], pod)] == [name]
        for spread in one["spec"]["template"]["spec"]["topologySpreadConstraints"]:
            assert selects(spread["labelSelector"]["matchLabels"], pods[name])
    for name, one in of_kind(objects, "PodDisruptionBudget").items():
        assert [each for each, pod in pods.items() if selects(one["spec"]["selector"]["matchLabels"], pod)] == [name]
    services = of_kind(objects, "Service")
    answering = {each for each, pod in pods.items() if selects(services[""]["spec"]["selector"], pod)}
    assert answering == pods.keys() & {"all", "api"}
    assert {each for each, pod in list_pods(objects).items() if selects(services["ops"]["spec"]["selector"], pod)} == {
        f"Deployment/{name}" for name in pods
    }
    for kind in ("ServiceMonitor", "PodMonitor"):
        for one in of_kind(objects, kind).values():
            labels = one["spec"]["selector"]["matchLabels"]
            targets = services if kind == "ServiceMonitor" else pods
            found = {each for each, target in targets.items() if selects(labels, target)}
            assert found == ({"ops"} if kind == "ServiceMonitor" else set(pods))


@each_case
def test_target_ports_exist(case):
    for service_object in of_kind(RENDERED[case], "Service").values():
        for pod in list_pods(RENDERED[case]).values():
            if selects(service_object["spec"]["selector"], pod):
                names = {port["name"] for port in container_of(pod)["ports"]}
                assert {port["targetPort"] for port in service_object["spec"]["ports"]} <= names


def test_the_ops_port_is_in_no_ingress_and_no_outside_service():
    for objects in RENDERED.values():
        services = of_kind(objects, "Service")
        if "ops" in services:
            assert services["ops"]["spec"]["type"] == "ClusterIP"
            assert [port["name"] for port in services[""]["spec"]["ports"]] == ["http"]
    paths = of_kind(RENDERED["ingress"], "Ingress")[""]["spec"]["rules"][0]["http"]["paths"]
    assert [path["backend"]["service"] for path in paths] == [{"name": PREFIX, "port": {"name": "http"}}]
    (rule,) = of_kind(RENDERED["gateway"], "HTTPRoute")[""]["spec"]["rules"]
    assert rule["backendRefs"] == [{"name": PREFIX, "port": 8080}]


def list_egress(case, component):
    """Peers and ports that a component may reach, as text."""
    policy = of_kind(RENDERED[case], "NetworkPolicy")[component]["spec"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    return policy["egress"]


def reaches_public(rules):
    return any(
        peer.get("ipBlock", {}).get("cidr") in {"0.0.0.0/0", "2000::/3"}
        for rule in rules
        for peer in rule.get("to", ())
    )


def ports_of(rules):
    return {port.get("port") for rule in rules for port in rule["ports"]}


def test_only_pods_that_deliver_reach_public_addresses():
    assert not reaches_public(list_egress("network", "api"))
    assert not reaches_public(list_egress("network", "ingest"))
    assert not reaches_public(list_egress("network", "migrate"))
    assert reaches_public(list_egress("network", "deliver"))
    assert not reaches_public(list_egress("network-proxy", "all"))  # the proxy does
    assert 3128 in ports_of(list_egress("network-proxy", "all"))


def test_components_reach_what_they_need():
    shared = {53, 5432, 4318}
    assert ports_of(list_egress("network", "api")) == shared
    assert ports_of(list_egress("network", "ingest")) == shared | {9092, 9093}
    # OPERATIONAL_TOPIC is written by what delivers
    assert ports_of(list_egress("network", "deliver")) == shared | {9092, 9093, 5353, 80, 443, 8443, 9000}
    assert ports_of(list_egress("network", "migrate")) == {53, 5432}
    assert ports_of(list_egress("network-any-port", "all")) == {53, 5432, None}


def test_every_rule_names_a_peer_or_a_port():
    for objects in RENDERED.values():
        for policy in of_kind(objects, "NetworkPolicy").values():
            for rule in policy["spec"]["egress"]:
                assert rule.get("to") or all("port" in port for port in rule["ports"])


def test_public_leaves_out_what_the_service_refuses():
    blocks = [
        peer["ipBlock"]
        for rule in list_egress("network", "deliver")
        for peer in rule.get("to", ())
        if peer.get("ipBlock", {}).get("except")
    ]
    except4, except6 = ([ip_network(text) for text in block["except"]] for block in blocks)
    assert [block["cidr"] for block in blocks] == ["0.0.0.0/0", str(PUBLIC_V6)]
    assert {block for block, _ in SPECIAL_V4} <= set(except4)
    special6 = {block for block, _ in SPECIAL_V6 if block.subnet_of(PUBLIC_V6)}
    assert set(except6) <= special6
    assert all(any(block.subnet_of(one) for one in except6) for block in special6)
    assert all(any(address in block for block in except4) for address in METADATA if address.version == 4)


def test_monitoring_reaches_the_ops_port_and_callers_the_api():
    for name, policy in of_kind(RENDERED["network"], "NetworkPolicy").items():
        open_ports = {port["port"] for rule in policy["spec"].get("ingress", ()) for port in rule["ports"]}
        assert open_ports == {"api": {"ops", "http"}, "migrate": set()}.get(name, {"ops"})
        for rule in policy["spec"].get("ingress", ()):
            assert rule["from"]


# --- what watches it ---


def test_alerts_and_dashboards_are_the_copies_of_grafanas():
    groups = [group for path in copies("alerts") for group in yaml.safe_load(path.read_text())["groups"]]
    rules = of_kind(RENDERED["monitoring"], "PrometheusRule")
    assert [group for one in rules.values() for group in one["spec"]["groups"]] == groups
    found = of_kind(RENDERED["monitoring"], "ConfigMap").values()
    maps = [one for one in found if one["metadata"]["labels"].get("grafana_dashboard") == "1"]
    texts = {name: text for one in maps for name, text in one["data"].items()}
    assert texts == {path.name: path.read_text().rstrip("\n") for path in copies("dashboards")}
    assert {one["metadata"]["namespace"] for one in maps} <= {"monitoring"}
    assert all(len(text) < 1_000_000 for text in texts.values())  # a ConfigMap holds 1 MiB


def copies(kind):
    return sorted(path for path in (CHART / "files" / kind).iterdir() if path.suffix in {".json", ".yaml"})


def test_job_is_the_charts_name_for_services_and_pods():
    monitor = of_kind(RENDERED["monitoring"], "ServiceMonitor")[""]["spec"]
    assert monitor["jobLabel"] == "app.kubernetes.io/name"
    assert (
        of_kind(RENDERED["monitoring"], "Service")["ops"]["metadata"]["labels"]["app.kubernetes.io/name"] == "webhookd"
    )
    (endpoint,) = of_kind(RENDERED["pod-monitor"], "PodMonitor")[""]["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("ops", "/metrics")


# --- what people see ---


def test_the_test_hook_is_a_program():
    pod = of_kind(RENDERED["ingress"], "Pod")["test"]
    assert is_hook(pod)
    (script,) = container_of(pod)["args"]
    compile(script, "test", "exec")
    assert f'HTTPConnection("{PREFIX}", 80,' in script


@pytest.mark.parametrize(
    ("case", "words"),
    [("minimal", "POST /v1/events"), ("split", "extraction.jobs"), ("split-without-kafka", "webhookd migrate")],
)
def test_notes_say_what_to_do_next(case, words):
    notes = render_texts(CASES[case])["webhookd/templates/NOTES.txt"]
    assert words in notes
    for name in re.findall(rf"{PREFIX}[a-z-]*", notes):
        assert name in {one["metadata"]["name"] for one in RENDERED[case]}


def test_every_case_says_what_it_is_for():
    for path in sorted((CHART / "ci").glob("*.yaml")):
        assert path.read_text().startswith("# "), path.name


def test_paths_in_the_readme_exist():
    for folder in (CHART, CHART.parent):
        text = (folder / "README.md").read_text()
        for target in re.findall(r"\]\((?!http)([^)#]+)", text):
            assert (folder / target).exists(), target
