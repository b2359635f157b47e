{{/* Egress rules. Each takes the root context unless its line says otherwise, and gives list items. */}}

{{/* A rule to peers on TCP ports; takes (dict "to" peers "ports" ports). No peers: anywhere, on these ports. */}}
{{- define "webhookd.reach" -}}
- ports:
    {{- range .ports }}
    - protocol: TCP
      port: {{ int . }}
    {{- end }}
  {{- with .to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "webhookd.reachNames" -}}
- to:
    {{- toYaml .Values.networkPolicy.dns.to | nindent 4 }}
  ports:
    - protocol: UDP
      port: 53
    - protocol: TCP
      port: 53
{{- end -}}

{{- define "webhookd.reachDatabase" -}}
{{ include "webhookd.reach" (dict "to" .Values.networkPolicy.database.to "ports" (list .Values.networkPolicy.database.port)) }}
{{- end -}}

{{/* DNS_SERVERS (`address[:port]`, `[address]:port`), which receivers' names are asked of. */}}
{{- define "webhookd.reachResolvers" -}}
{{- range $server := include "webhookd.text" (.Values.settings.DNS_SERVERS | default "") | splitList "," -}}
{{- with trim $server }}
{{- $port := 53 }}
{{- $address := . }}
{{- if regexMatch "^[0-9.]+:[0-9]+$|^\\[.*\\]:[0-9]+$" . }}
{{- $port = regexFind "[0-9]+$" . }}
{{- $address = regexReplaceAll ":[0-9]+$" . "" }}
{{- end }}
{{- $address = trimAll "[]" $address }}
- to:
    - ipBlock:
        cidr: {{ $address }}/{{ ternary 128 32 (contains ":" $address) }}
  ports:
    - protocol: UDP
      port: {{ int $port }}
    - protocol: TCP
      port: {{ int $port }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* Public addresses on 443 and EGRESS_PORTS (`8443,9000-9010`, or `*` for all); with `ALLOW_HTTP` also 80. */}}
{{- define "webhookd.reachPublic" -}}
{{- $text := include "webhookd.text" (.Values.settings.EGRESS_PORTS | default "") -}}
- to:
    - ipBlock:
        cidr: 0.0.0.0/0
        {{- with .Values.networkPolicy.public.except }}
        except:
          {{- toYaml . | nindent 10 }}
        {{- end }}
    - ipBlock:
        cidr: 2000::/3
        {{- with .Values.networkPolicy.public.except6 }}
        except:
          {{- toYaml . | nindent 10 }}
        {{- end }}
  ports:
    {{- if contains "*" $text }}
    - protocol: TCP
    {{- else }}
    - protocol: TCP
      port: 443
    {{- if eq (include "webhookd.text" .Values.settings.ALLOW_HTTP) "true" }}
    - protocol: TCP
      port: 80
    {{- end }}
    {{- range $part := splitList "," $text }}
    {{- with trim $part }}
    - protocol: TCP
      port: {{ regexFind "^[0-9]+" . }}
      {{- if contains "-" . }}
      endPort: {{ regexFind "[0-9]+$" . }}
      {{- end }}
    {{- end }}
    {{- end }}
    {{- end }}
{{- end -}}

{{/* What one component reaches; takes (dict "root" . "component" name). */}}
{{- define "webhookd.egress" -}}
{{- $values := .root.Values }}
{{- $policy := $values.networkPolicy }}
{{- $delivers := has .component (list "all" "deliver") }}
{{- $reads := has .component (list "all" "ingest") }}
{{ include "webhookd.reachNames" .root }}
{{ include "webhookd.reachDatabase" .root }}
{{- if and $values.settings.KAFKA_BOOTSTRAP_SERVERS (or $reads (and $delivers $values.settings.OPERATIONAL_TOPIC)) }}
{{ include "webhookd.reach" $policy.kafka }}
{{- end }}
{{- with $policy.otlp.to }}
{{ include "webhookd.reach" (dict "to" . "ports" (list $policy.otlp.port)) }}
{{- end }}
{{- if $delivers }}
{{- with include "webhookd.reachResolvers" .root | trim }}
{{ . }}
{{- end }}
{{- if hasKey (include "webhookd.secrets" .root | fromYaml) "EGRESS_PROXY" }}
{{ include "webhookd.reach" (dict "to" $policy.proxy.to "ports" (list $policy.proxy.port)) }}
{{- else }}
{{ include "webhookd.reachPublic" .root }}
{{- end }}
{{- with $policy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}
