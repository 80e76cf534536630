{{/* What the pods of kproxide mount: the values that name a CA or a join script decide. */}}
{{- define "kproxide.mounted" -}}
{{- $authorities := dict }}
{{- range $name, $cluster := .Values.clusters }}
{{- if (($cluster).caConfigMap).name }}
{{- $_ := set $authorities $name $cluster.caConfigMap }}
{{- end }}
{{- end }}
{{- $scripts := dict }}
{{- range $name, $class := .Values.nodeClasses }}
{{- if include "kproxide.joinSecret" (list $ ($class | default dict)) }}
{{- $_ := set $scripts $name $class.joinScript }}
{{- end }}
{{- end }}
{{- dict "authorities" $authorities "scripts" $scripts | toYaml -}}
{{- end -}}

{{- define "kproxide.volumeMounts" -}}
{{- $mounted := include "kproxide.mounted" . | fromYaml -}}
{{- $authorities := $mounted.authorities -}}
{{- $scripts := $mounted.scripts -}}
{{- if .Values.clusters }}
- name: credentials
  mountPath: /etc/kproxide/credentials
  readOnly: true
{{- end }}
{{- if $authorities }}
- name: ca
  mountPath: /etc/kproxide/ca
  readOnly: true
{{- end }}
{{- if $scripts }}
- name: join
  mountPath: /etc/kproxide/join
  readOnly: true
{{- end }}
{{- if .Values.policies.configMaps }}
- name: policies
  mountPath: /etc/kproxide/policies
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kproxide.volumes" -}}
{{- $mounted := include "kproxide.mounted" . | fromYaml -}}
{{- $authorities := $mounted.authorities -}}
{{- $scripts := $mounted.scripts -}}
# One folder per ProxmoxCluster, by the name in its spec.credentials.
{{- if .Values.clusters }}
- name: credentials
  projected:
    defaultMode: 288 # 0440
    sources:
      {{- range $name, $cluster := .Values.clusters }}
      {{- $credentials := ($cluster).credentials | default dict }}
      - secret:
          name: {{ $credentials.existingSecret | default (printf "%s-credentials" (include "kproxide.fullname" $)) }}
          items:
            {{- range $key, $_ := include "kproxide.loginKeys" $credentials | fromYaml }}
            - key: {{ empty $credentials.existingSecret | ternary (printf "%s.%s" $name $key) $key }}
              path: {{ $name }}/{{ $key }}
            {{- end }}
      # Where they may be sent.
      - secret:
          name: {{ $credentials.existingSecret | default (printf "%s-credentials" (include "kproxide.fullname" $)) }}
          optional: true
          items:
            - key: {{ empty $credentials.existingSecret | ternary (printf "%s.endpoints" $name) "endpoints" }}
              path: {{ $name }}/endpoints
      {{- end }}
{{- end }}
{{- with $authorities }}
- name: ca
  projected:
    sources:
      {{- range $name, $ca := . }}
      - configMap:
          name: {{ $ca.name }}
          items:
            - key: {{ $ca.key | default "ca.crt" }}
              path: {{ $name }}.pem
      {{- end }}
{{- end }}
# One file per NodeClass, by its name.
{{- with $scripts }}
- name: join
  projected:
    defaultMode: 288 # 0440
    sources:
      {{- range $name, $script := . }}
      - secret:
          name: {{ include "kproxide.joinSecret" (list $ (dict "joinScript" $script)) }}
          items:
            - key: {{ empty $script.existingSecret | ternary $name ($script.key | default "command") }}
              path: {{ $name }}
      {{- end }}
{{- end }}
{{- with .Values.policies.configMaps }}
- name: policies
  projected:
    sources:
      {{- range . }}
      - configMap:
          name: {{ .name }}
          optional: {{ dig "optional" true . }}
          {{- with .items }}
          items: {{- toYaml . | nindent 12 }}
          {{- end }}
      {{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
