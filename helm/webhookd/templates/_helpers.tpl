{{/* Names, labels, settings: what several templates say. Each takes the root context unless its line says otherwise. */}}

{{- define "webhookd.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* Prefix of every object's name; 50 characters leave room for what is put behind it. */}}
{{- define "webhookd.fullname" -}}
{{- $name := include "webhookd.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that selectors use; takes (dict "root" . "component" name). They never change within a release. */}}
{{- define "webhookd.selector" -}}
app.kubernetes.io/name: {{ include "webhookd.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* All labels of an object; takes (dict "root" . "component" name). */}}
{{- define "webhookd.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "webhookd.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of a pod: no chart version, so that another chart alone restarts nothing; takes (dict "root" . "component" name). */}}
{{- define "webhookd.podLabels" -}}
{{ include "webhookd.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "webhookd.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "webhookd.serviceAccountName" -}}
{{- $made := ternary (include "webhookd.fullname" .) "default" .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default $made -}}
{{- end -}}

{{/* Which Deployments there are, as a YAML list. */}}
{{- define "webhookd.components" -}}
{{- if not .Values.split -}}
[all]
{{- else if .Values.settings.KAFKA_BOOTSTRAP_SERVERS -}}
[api, ingest, deliver]
{{- else -}}
[api, deliver]
{{- end -}}
{{- end -}}

{{/* What pods of one component are like, as YAML: `pod` with the component's differences; takes (dict "root" . "component" name). */}}
{{- define "webhookd.podValues" -}}
{{- mergeOverwrite (deepCopy .root.Values.pod) (deepCopy (get .root.Values.components .component)) | toYaml -}}
{{- end -}}

{{/* Which component answers the admin API. */}}
{{- define "webhookd.apiComponent" -}}
{{- ternary "api" "all" .Values.split -}}
{{- end -}}

{{/* A setting's value as the text of an environment variable; takes the value. Whole numbers stay whole. */}}
{{- define "webhookd.text" -}}
{{- if kindIs "slice" . -}}
{{- $parts := list -}}
{{- range . -}}
{{- $parts = append $parts (include "webhookd.text" .) -}}
{{- end -}}
{{- join "," $parts -}}
{{- else if and (kindIs "float64" .) (eq (floor .) (float64 .)) -}}
{{- int64 . -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{/* The seconds of a duration (`25s`, `1m30s`, `25`), rounded up; takes the value. */}}
{{- define "webhookd.seconds" -}}
{{- $text := include "webhookd.text" . | lower -}}
{{- $total := 0.0 -}}
{{- if regexMatch "^[0-9.]+$" $text -}}
{{- $total = float64 $text -}}
{{- else if regexMatch "^([0-9.]+(ms|s|m|h))+$" $text -}}
{{- $units := dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 -}}
{{- range $part := regexFindAll "[0-9.]+(ms|s|m|h)" $text -1 -}}
{{- $unit := regexFind "[a-z]+" $part -}}
{{- $total = addf $total (mulf (float64 (trimSuffix $unit $part)) (get $units $unit)) -}}
{{- end -}}
{{- else -}}
{{- fail (printf "settings.DRAIN_TIMEOUT: %s is not a duration such as 25s" $text) -}}
{{- end -}}
{{- ceil $total | int -}}
{{- end -}}

{{/* Seconds between SIGTERM and SIGKILL: preStop, the drain budget, and 15 s to hand back the rest and to close. */}}
{{- define "webhookd.gracePeriod" -}}
{{- $drain := include "webhookd.seconds" (.Values.settings.DRAIN_TIMEOUT | default "25s") | int -}}
{{- add .Values.rollout.preStopSeconds $drain 15 -}}
{{- end -}}

{{/*
The secrets in use, as YAML: setting → {name: Secret, key: key in it, own: made by this chart}.
Three are needed. An entry is in use when it has a value, a Secret or a key of its own.
*/}}
{{- define "webhookd.secrets" -}}
{{- $root := . -}}
{{- $needed := list "DATABASE_URL" "ENCRYPTION_KEYS" "OPERATOR_KEY" -}}
{{- $shared := .Values.secrets.existingSecret -}}
{{- $found := dict -}}
{{- range $setting, $entry := omit .Values.secrets "existingSecret" "version" -}}
{{- $key := $entry.key | default $setting -}}
{{- if and $entry.value $entry.existingSecret -}}
{{- fail (printf "secrets.%s: has a value and an existingSecret; keep one" $setting) -}}
{{- else if $entry.value -}}
{{- $_ := set $found $setting (dict "name" (include "webhookd.fullname" $root) "key" $setting "own" true) -}}
{{- else if $entry.existingSecret -}}
{{- $_ := set $found $setting (dict "name" $entry.existingSecret "key" $key "own" false) -}}
{{- else if and $shared (or $entry.key (has $setting $needed)) -}}
{{- $_ := set $found $setting (dict "name" $shared "key" $key "own" false) -}}
{{- else if or $entry.key (has $setting $needed) -}}
{{- fail (printf "secrets.%s: set existingSecret or value, or secrets.existingSecret; nothing is generated, since it must be the same at every upgrade" $setting) -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{/*
What a component's load shows in, as a YAML list of lag, due: unread records where it reads Kafka, the oldest due delivery
where it sends; takes (dict "root" . "component" name).
*/}}
{{- define "webhookd.loads" -}}
{{- $loads := list -}}
{{- if and .root.Values.settings.KAFKA_BOOTSTRAP_SERVERS (has .component (list "all" "ingest")) -}}
{{- $loads = append $loads "lag" -}}
{{- end -}}
{{- if has .component (list "all" "deliver") -}}
{{- $loads = append $loads "due" -}}
{{- end -}}
{{- toYaml $loads -}}
{{- end -}}

{{/* Whether something else than Kubernetes scales a component; takes (dict "root" . "component" name). Empty: no. */}}
{{- define "webhookd.scaler" -}}
{{- $pod := include "webhookd.podValues" . | fromYaml -}}
{{- if $pod.autoscaling.enabled -}}
{{- ternary "keda" "hpa" (and .root.Values.scaling.keda.enabled (ne .component "api")) -}}
{{- end -}}
{{- end -}}
