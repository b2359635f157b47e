{{/* What pods have inside. Each takes the root context unless its line says otherwise. */}}

{{- define "webhookd.podSecurityContext" -}}
runAsNonRoot: true
{{- range $name, $id := .Values.securityIds }}
{{- if not (kindIs "invalid" $id) }}
{{ $name }}: {{ int64 $id }}
{{- end }}
{{- end }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "webhookd.securityContext" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "webhookd.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* A probe; takes (dict "path" path "numbers" values). */}}
{{- define "webhookd.probe" -}}
httpGet:
  path: {{ .path }}
  port: ops
{{ toYaml .numbers }}
{{- end -}}

{{/* Variables that the ConfigMap does not hold: where mounted files are. */}}
{{- define "webhookd.env" -}}
{{- range $setting, $source := include "webhookd.secrets" . | fromYaml }}
- name: WEBHOOKD_{{ $setting }}_FILE
  value: /etc/webhookd/secrets/{{ $setting }}
{{- end }}
{{- if or .Values.profiles .Values.profilesConfigMap }}
- name: WEBHOOKD_PROFILES_DIR
  value: /etc/webhookd/profiles
{{- end }}
{{- range $of, $setting := dict "receivers" "CA_FILE" "kafka" "KAFKA_CA_FILE" }}
{{- $file := get $.Values.caFiles $of }}
{{- if or $file.configMap $file.secret }}
- name: WEBHOOKD_{{ $setting }}
  value: /etc/webhookd/ca/{{ $of }}.crt
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "webhookd.mounts" -}}
- name: tmp
  mountPath: /tmp
- name: secrets
  mountPath: /etc/webhookd/secrets
  readOnly: true
{{- if or .Values.profiles .Values.profilesConfigMap }}
- name: profiles
  mountPath: /etc/webhookd/profiles
  readOnly: true
{{- end }}
{{- if include "webhookd.caSources" . }}
- name: ca
  mountPath: /etc/webhookd/ca
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "webhookd.volumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- range $setting, $source := include "webhookd.secrets" . | fromYaml }}
      - secret:
          name: {{ $source.name }}
          items:
            - key: {{ $source.key }}
              path: {{ $setting }}
      {{- end }}
{{- if or .Values.profiles .Values.profilesConfigMap }}
- name: profiles
  configMap:
    name: {{ .Values.profilesConfigMap | default (printf "%s-profiles" (include "webhookd.fullname" .)) }}
{{- end }}
{{- with include "webhookd.caSources" . }}
- name: ca
  projected:
    sources:
      {{- . | nindent 6 }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Sources of the volume with certificate authorities; empty: there are none. */}}
{{- define "webhookd.caSources" -}}
{{- range $of, $file := .Values.caFiles }}
{{- if and $file.configMap $file.secret }}
{{- fail (printf "caFiles.%s: has a configMap and a secret; keep one" $of) }}
{{- else if or $file.configMap $file.secret }}
- {{ ternary "configMap" "secret" (not $file.secret) }}:
    name: {{ $file.configMap | default $file.secret }}
    items:
      - key: {{ $file.key }}
        path: {{ $of }}.crt
{{- end }}
{{- end }}
{{- end -}}
