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
{{- end -}}

{{- define "kproxide.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "kproxide.fullname" .) -}}
{{- end -}}

{{/* The Secret with Proxmox's credentials. */}}
{{- define "kproxide.credentialsSecret" -}}
{{- .Values.proxmox.credentials.existingSecret | default (printf "%s-credentials" (include "kproxide.fullname" .)) -}}
{{- end -}}

{{/* Which kind of credentials: "token" or "password". Given ones show their kind by themselves. */}}
{{- define "kproxide.credentialsKind" -}}
{{- $credentials := .Values.proxmox.credentials -}}
{{- if $credentials.existingSecret -}}
{{- $credentials.kind -}}
{{- else if $credentials.password -}}
password
{{- else -}}
token
{{- end -}}
{{- end -}}

{{/* The Secret with the join script, or nothing if the template joins by itself. */}}
{{- define "kproxide.joinSecret" -}}
{{- $script := .Values.nodeClass.joinScript -}}
{{- if $script.existingSecret -}}
{{- $script.existingSecret -}}
{{- else if $script.command -}}
{{- printf "%s-join" (include "kproxide.fullname" .) -}}
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
{{- end -}}

{{/*
What the chart itself understands below proxmox, nodeClass and nodePool. Everything else belongs into their spec.
*/}}
{{- define "kproxide.ownKeys" -}}
proxmox: [name, credentials, caConfigMap, spec]
nodeClass: [name, joinScript, spec]
nodePool: [name, spec]
{{- end -}}

{{/* Keys of an earlier chart that became something else than a field of the spec by the same name. */}}
{{- define "kproxide.movedKeys" -}}
proxmox.tls: proxmox.spec.tls, and tls.caConfigMap is proxmox.caConfigMap
nodeClass.join: nodeClass.joinScript in place of join.guestExec
proxmox.extraSpec: proxmox.spec
nodeClass.extraSpec: nodeClass.spec
nodePool.extraSpec: nodePool.spec
{{- end -}}

{{/*
Fails with all that is missing or contradictory at once, so that you see every problem in one run.
values.schema.json says what a single value may look like. This is about values that depend on each other.
*/}}
{{- define "kproxide.check" -}}
{{- $problems := list -}}
{{- $moved := include "kproxide.movedKeys" . | fromYaml -}}
{{- range $object, $own := include "kproxide.ownKeys" . | fromYaml -}}
{{- range $key := keys (index $.Values $object) | sortAlpha -}}
{{- if not (has $key $own) -}}
{{- $old := printf "%s.%s" $object $key -}}
{{- $new := get $moved $old | default (printf "%s.spec.%s (fields of the object stand below spec)" $object $key) -}}
{{- $problems = append $problems (printf "%s: not a key of this chart. Write %s" $old $new) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $credentials := .Values.proxmox.credentials -}}
{{- $token := or $credentials.tokenId $credentials.tokenSecret -}}
{{- $password := or $credentials.username $credentials.password -}}
{{- if not (.Values.proxmox.spec).endpoints -}}
{{- $problems = append $problems "proxmox.spec.endpoints: where Proxmox VE answers, such as {https://pve1.example:8006}" -}}
{{- end -}}
{{- if and $credentials.existingSecret (or $token $password) -}}
{{- $problems = append $problems "proxmox.credentials: either existingSecret or the credentials themselves, not both" -}}
{{- else if and $token $password -}}
{{- $problems = append $problems "proxmox.credentials: either tokenId and tokenSecret or username and password, not both" -}}
{{- else if $token -}}
{{- if not (and $credentials.tokenId $credentials.tokenSecret) -}}
{{- $problems = append $problems "proxmox.credentials: tokenId and tokenSecret, both of them" -}}
{{- end -}}
{{- else if $password -}}
{{- if not (and $credentials.username $credentials.password) -}}
{{- $problems = append $problems "proxmox.credentials: username and password, both of them" -}}
{{- end -}}
{{- else if not $credentials.existingSecret -}}
{{- $problems = append $problems "proxmox.credentials: an API token, as existingSecret (keys token-id and token-secret) or as tokenId and tokenSecret" -}}
{{- end -}}
{{- if not ((.Values.nodeClass.spec).template).name -}}
{{- $problems = append $problems "nodeClass.spec.template.name: the name of the VM template to clone" -}}
{{- end -}}
{{- if and .Values.proxmox.caConfigMap.name (.Values.proxmox.spec).tls -}}
{{- $problems = append $problems "proxmox: either caConfigMap or spec.tls, not both" -}}
{{- end -}}
{{- $script := .Values.nodeClass.joinScript -}}
{{- if and $script.existingSecret $script.command -}}
{{- $problems = append $problems "nodeClass.joinScript: either existingSecret or command, not both" -}}
{{- end -}}
{{- if and (include "kproxide.joinSecret" .) (.Values.nodeClass.spec).join -}}
{{- $problems = append $problems "nodeClass: either joinScript or spec.join, not both" -}}
{{- end -}}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) -}}
{{- $problems = append $problems "serviceAccount.name: needed with create: false; otherwise every pod of the namespace that names no ServiceAccount would get kproxide's rights" -}}
{{- end -}}
{{- $own := include "kproxide.ownFlags" . | fromYaml -}}
{{- range .Values.extraArgs -}}
{{- $flag := splitList "=" . | first -}}
{{- with get $own $flag -}}
{{- $problems = append $problems (printf "extraArgs: %s is set by the chart: use %s" $flag .) -}}
{{- end -}}
{{- end -}}
{{- if $problems -}}
{{- fail (printf "\n\nkproxide cannot be installed with these values. Missing or contradictory:\n  - %s\n" (join "\n  - " $problems)) -}}
{{- end -}}
{{- end -}}
