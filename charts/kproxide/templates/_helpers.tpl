{{/* The chart's name. */}}
{{- define "kproxide.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/*
The name of everything in this release, and of the Lease and the key Secret that kproxide makes by itself.
At most 48 characters, so that "-ownership-key" and "-credentials" still fit into 63.
*/}}
{{- define "kproxide.fullname" -}}
{{- $name := include "kproxide.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 48 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 48 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 48 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "kproxide.selectorLabels" -}}
app.kubernetes.io/name: {{ include "kproxide.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kproxide.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "kproxide.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Name, labels and annotations of an object: from the root, the name and the object's own annotations. */}}
{{- define "kproxide.metadata" -}}
{{- $root := first . -}}
name: {{ index . 1 }}
labels: {{- include "kproxide.labels" $root | nindent 2 }}
{{- with merge dict (last .) $root.Values.commonAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "kproxide.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "kproxide.fullname" .) -}}
{{- end -}}

{{/*
The keys of a Secret with credentials, each with the value that it comes from: a token or a password. Credentials in the
values show by themselves which they are.
*/}}
{{- define "kproxide.loginKeys" -}}
{{- if or .password (and .existingSecret (eq (.kind | default "token") "password")) -}}
{username: username, password: password}
{{- else -}}
{token-id: tokenId, token-secret: tokenSecret}
{{- end -}}
{{- end -}}

{{/* The Secret with the join script of a class, or nothing if its template joins by itself: from the root and a class. */}}
{{- define "kproxide.joinSecret" -}}
{{- with (last .).joinScript -}}
{{- if .existingSecret -}}
{{- .existingSecret -}}
{{- else if .command -}}
{{- include "kproxide.fullname" (first $) }}-join
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
The spec of an object, from a list of two: the spec in the values, and the references to other objects that the chart
adds. A field that the values give wins.
*/}}
{{- define "kproxide.spec" -}}
{{- $spec := deepCopy (last .) -}}
{{- range $field, $value := first . -}}
{{- $_ := set $spec $field $value -}}
{{- end -}}
{{- toYaml $spec -}}
{{- end -}}

{{- define "kproxide.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
The flags that the chart sets, each with the value to use in its place: `kproxide run` takes none of them twice.
*/}}
{{- define "kproxide.ownFlags" -}}
--name: fullnameOverride
--credentials-dir: extraVolumeMounts below /etc/kproxide/credentials
--join-dir: extraVolumeMounts below /etc/kproxide/join
--admin-address: admin.address and admin.port
--log: log
--log-format: logFormat
--dry-run: dryRun
--kproximate-metrics: kproximateMetrics
{{- end -}}

