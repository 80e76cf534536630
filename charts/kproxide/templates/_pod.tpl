{{/*
Where a pod of this chart runs: the user's affinity, and ours in each of its terms. Not on a Node that kproxide made: it
would have to drain itself.
*/}}
{{- define "kproxide.affinity" -}}
{{- $required := list -}}
{{- $preferred := list (dict "weight" 50 "preference" (dict "matchExpressions" (list (dict "key" "node-role.kubernetes.io/control-plane" "operator" "Exists")))) -}}
{{- $unmanaged := dict "key" "kproxide.dev/claim" "operator" "DoesNotExist" -}}
{{- if .Values.allowManagedNodes -}}
{{- $preferred = prepend $preferred (dict "weight" 100 "preference" (dict "matchExpressions" (list $unmanaged))) -}}
{{- else -}}
{{- $required = append $required $unmanaged -}}
{{- end -}}
{{- with .Values.image.architectures -}}
{{- $required = append $required (dict "key" "kubernetes.io/arch" "operator" "In" "values" .) -}}
{{- end -}}
{{- $affinity := deepCopy .Values.affinity -}}
{{- $node := $affinity.nodeAffinity | default dict -}}
{{- $terms := list -}}
{{- range ($node.requiredDuringSchedulingIgnoredDuringExecution).nodeSelectorTerms | default (list dict) -}}
{{- $terms = append $terms (merge (dict "matchExpressions" (concat $required (.matchExpressions | default list))) .) -}}
{{- end -}}
{{- if or $required $node.requiredDuringSchedulingIgnoredDuringExecution -}}
{{- $_ := set $node "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) -}}
{{- end -}}
{{- $given := $node.preferredDuringSchedulingIgnoredDuringExecution | default list -}}
{{- $_ := set $node "preferredDuringSchedulingIgnoredDuringExecution" (concat $preferred $given) -}}
{{- $_ := set $affinity "nodeAffinity" $node -}}
{{- toYaml $affinity -}}
{{- end -}}

{{/* What each pod of this chart has: who it is, where it runs, and how it finds others. */}}
{{- define "kproxide.pod" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
# Default: the Node's DNS, because the cluster's own may be what waits for a Node.
dnsPolicy: {{ .Values.dnsPolicy }}
{{- with .Values.dnsConfig }}
dnsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
affinity: {{- include "kproxide.affinity" . | nindent 2 }}
tolerations:
  - key: node-role.kubernetes.io/control-plane
    operator: Exists
  - key: node-role.kubernetes.io/master
    operator: Exists
  - key: node-role.kubernetes.io/etcd
    operator: Exists
  # k3s's documented taint for servers that take no workload.
  - key: CriticalAddonsOnly
    operator: Exists
  {{- with .Values.tolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The labels of the pod: the user's never replace those by which the Deployment finds it. */}}
{{- define "kproxide.podLabels" -}}
{{- $own := include "kproxide.selectorLabels" . | fromYaml -}}
{{- toYaml (merge $own .Values.podLabels .Values.commonLabels) -}}
{{- end -}}
