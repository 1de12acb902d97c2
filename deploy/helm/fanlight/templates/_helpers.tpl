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

{{/* The configuration file: what the chart decides comes over what the values have. */}}
{{- define "fanlight.config" -}}
{{- $admin := merge (dict "listen" "0.0.0.0:8081" "token" "${FANLIGHT_ADMIN_TOKEN}") (default (dict) .Values.config.admin) -}}
{{- $set := dict "listen" "0.0.0.0:8080" "admin" $admin -}}
{{- toYaml (merge $set (omit .Values.config "admin" "listen")) -}}
{{- end -}}
