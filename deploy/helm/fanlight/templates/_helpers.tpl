{{- define "fanlight.name" -}}
{{- .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "fanlight.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "fanlight.kind" -}}
{{- ternary "StatefulSet" "Deployment" .Values.persistence.enabled -}}
{{- end -}}

{{- define "fanlight.selector" -}}
app.kubernetes.io/name: {{ include "fanlight.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "fanlight.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "fanlight.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "fanlight.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "fanlight.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "fanlight.adminSecret" -}}
{{- default (printf "%s-admin" (include "fanlight.fullname" .)) .Values.admin.existingSecret -}}
{{- end -}}

{{/* The hosts that clients may name: those of the Service, and those of the routes to it, without wildcards. */}}
{{- define "fanlight.hosts" -}}
{{- $name := include "fanlight.fullname" . -}}
{{- $inside := printf "%s.%s" $name .Release.Namespace -}}
{{- $hosts := list $name $inside (printf "%s.svc" $inside) (printf "%s.svc.cluster.local" $inside) -}}
{{- range concat (ternary .Values.ingress.hosts list .Values.ingress.enabled) (ternary .Values.httpRoute.hostnames list .Values.httpRoute.enabled) -}}
{{- if not (hasPrefix "*" .) }}{{ $hosts = append $hosts . }}{{ end -}}
{{- end -}}
{{- toYaml (uniq $hosts) -}}
{{- end -}}

{{/* The configuration file: what the chart decides comes over what the values have. */}}
{{- define "fanlight.config" -}}
{{- $admin := merge (dict "listen" "0.0.0.0:8081" "token" "${FANLIGHT_ADMIN_TOKEN}") (default (dict) .Values.config.admin) -}}
{{- $set := dict "listen" "0.0.0.0:8080" "admin" $admin -}}
{{- $defaults := dict "stateDir" "/var/lib/fanlight/state" "allowedHosts" (include "fanlight.hosts" . | fromYamlArray) -}}
{{- toYaml (merge $set (omit .Values.config "admin" "listen") $defaults) -}}
{{- end -}}
