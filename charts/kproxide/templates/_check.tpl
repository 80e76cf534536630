{{/*
The three maps of objects: what the chart itself understands in an entry (everything else belongs into its spec), the key
of an earlier chart that had one entry only, and the name that this entry had.
*/}}
{{- define "kproxide.maps" -}}
clusters: {own: [credentials, caConfigMap, spec], old: proxmox, name: proxmox}
nodeClasses: {own: [joinScript, spec], old: nodeClass, name: default}
nodePools: {own: [spec], old: nodePool, name: default}
{{- end -}}

{{/* Keys of an earlier chart that became something else than a field of the spec by the same name. */}}
{{- define "kproxide.movedKeys" -}}
clusters.tls: spec.tls, and tls.caConfigMap is caConfigMap
clusters.extraSpec: spec
nodeClasses.join: joinScript in place of join.guestExec
nodeClasses.extraSpec: spec
nodePools.extraSpec: spec
{{- end -}}

{{/*
The values as maps, where an earlier chart had proxmox, nodeClass and nodePool; nothing if all are maps already. Secrets
are not shown.
*/}}
{{- define "kproxide.newForm" -}}
{{- $maps := include "kproxide.maps" . | fromYaml -}}
{{- $new := dict -}}
{{- range $map, $its := $maps -}}
{{- if hasKey $.Values $its.old -}}
{{- $given := get $.Values $its.old -}}
{{- $name := $its.name -}}
{{- $entry := dict -}}
{{- if kindIs "string" $given -}}
{{- $name = $given -}}
{{- else if kindIs "map" $given -}}
{{- $name = $given.name | default $name -}}
{{- $spec := dict -}}
{{- range $key, $value := $given -}}
{{- if and (eq $key "spec" "extraSpec") (kindIs "map" $value) -}}
{{- $spec = merge $spec (deepCopy $value) -}}
{{- else if has $key $its.own -}}
{{- $_ := set $entry $key (deepCopy $value) -}}
{{- else if ne $key "name" -}}
{{- $_ := set $spec $key $value -}}
{{- end -}}
{{- end -}}
{{- $_ := set $entry "spec" $spec -}}
{{- range $part, $secrets := dict "credentials" (list "tokenSecret" "password") "joinScript" (list "command") -}}
{{- range $secret := $secrets -}}
{{- if dig $part $secret "" $entry -}}
{{- $_ := set (get $entry $part) $secret "(as it was)" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $_ := set $new $map (dict $name $entry) -}}
{{- end -}}
{{- end -}}
{{- if and $new (not (get $new "nodePools")) (not .Values.nodePools) -}}
{{- $_ := set $new "nodePools" (dict "default" dict) -}}
{{- end -}}
{{- if $new -}}
{{- toYaml $new -}}
{{- end -}}
{{- end -}}

{{/* What is no map by name, with what to write in its place: everything else may then rely on the form. */}}
{{- define "kproxide.misshapen" -}}
{{- $problems := list -}}
{{- range $map, $its := include "kproxide.maps" . | fromYaml -}}
{{- $entries := get $.Values $map -}}
{{- if not (kindIs "map" $entries) -}}
{{- $right := dict -}}
{{- range $entries | empty | ternary list (kindIs "slice" $entries | ternary $entries (list $entries)) -}}
{{- if kindIs "map" . -}}
{{- $_ := set $right (.name | default $its.name) (omit . "name") -}}
{{- else -}}
{{- $_ := set $right (toString .) (dict "spec" dict) -}}
{{- end -}}
{{- end -}}
{{- $problems = append $problems (printf "%s: a map by the objects' names. Write\n%s" $map (dict $map $right | toYaml | indent 6)) -}}
{{- else -}}
{{- range $name, $entry := $entries -}}
{{- if not (or (kindIs "map" $entry) (kindIs "invalid" $entry)) -}}
{{- $problems = append $problems (printf "%s.%s: %v is no object. Write %s: {%s: {spec: {}}}, and its fields below spec" $map $name $entry $map $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $problems -}}
{{- range $name, $pool := .Values.nodePools -}}
{{- range $question, $policy := (($pool).spec).policies -}}
{{- if kindIs "string" $policy -}}
{{- $problems = append $problems (printf "nodePools.%s.spec.policies.%s: write %s: {use: %s}" $name $question $question $policy) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range .Values.policies.configMaps -}}
{{- if kindIs "string" . -}}
{{- $problems = append $problems (printf "policies.configMaps: write [{name: %s}]" .) -}}
{{- end -}}
{{- end -}}
{{- range $problems -}}
{{- printf "\n  - %s" . -}}
{{- end -}}
{{- end -}}

{{/*
Fails with all that is missing or contradictory at once, so that you see every problem in one run.
values.schema.json says what a single value may look like. This is about values that depend on each other, or on what the
program knows (program.yaml).
*/}}
{{- define "kproxide.check" -}}
{{- with include "kproxide.newForm" . -}}
{{- fail (printf "\n\nproxmox, nodeClass and nodePool were keys of an earlier chart. Their objects are in maps by name now. Write\n\n%s\n" .) -}}
{{- end -}}
{{- with include "kproxide.misshapen" . -}}
{{- fail (printf "\n\nkproxide cannot be installed with these values. Of the wrong form:%s\n" .) -}}
{{- end -}}
{{- $problems := list -}}
{{- $moved := include "kproxide.movedKeys" . | fromYaml -}}
{{- range $map, $its := include "kproxide.maps" . | fromYaml -}}
{{- range $name, $entry := get $.Values $map -}}
{{- range $key := keys ($entry | default dict) | sortAlpha -}}
{{- if not (has $key $its.own) -}}
{{- $new := get $moved (printf "%s.%s" $map $key) | default (printf "spec.%s (fields of the object stand below spec)" $key) -}}
{{- $problems = append $problems (printf "%s.%s.%s: not a key of this chart. Write %s.%s.%s" $map $name $key $map $name $new) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $elsewhere := false -}}
{{- range .Values.extraVolumeMounts -}}
{{- $elsewhere = or $elsewhere (hasPrefix "/etc/kproxide/credentials/" .mountPath) -}}
{{- end -}}
{{- if not (or .Values.clusters $elsewhere) -}}
{{- $problems = append $problems "clusters: at least one Proxmox cluster, such as {proxmox: {credentials: {existingSecret: proxmox}, spec: {endpoints: [https://pve1.example:8006]}}}" -}}
{{- if not .Values.nodeClasses -}}
{{- $problems = append $problems "nodeClasses: at least one, such as {default: {spec: {template: {name: k8s-node}}}}" -}}
{{- end -}}
{{- if not .Values.nodePools -}}
{{- $problems = append $problems "nodePools: at least one, such as {default: {}}" -}}
{{- end -}}
{{- end -}}
{{- range $name, $cluster := .Values.clusters -}}
{{- $at := printf "clusters.%s" $name -}}
{{- $cluster = $cluster | default dict -}}
{{- $credentials := $cluster.credentials | default dict -}}
{{- $token := or $credentials.tokenId $credentials.tokenSecret -}}
{{- $password := or $credentials.username $credentials.password -}}
{{- if not ($cluster.spec).endpoints -}}
{{- $problems = append $problems (printf "%s.spec.endpoints: where Proxmox VE answers, such as [https://pve1.example:8006]" $at) -}}
{{- end -}}
{{- if and $credentials.existingSecret (or $token $password) -}}
{{- $problems = append $problems (printf "%s.credentials: either existingSecret or the credentials themselves, not both" $at) -}}
{{- else if and $credentials.existingSecret $credentials.endpoints -}}
{{- $problems = append $problems (printf "%s.credentials: with existingSecret its key endpoints says where they may be sent, and endpoints here says nothing" $at) -}}
{{- else if and $token $password -}}
{{- $problems = append $problems (printf "%s.credentials: either tokenId and tokenSecret or username and password, not both" $at) -}}
{{- else if $token -}}
{{- if not (and $credentials.tokenId $credentials.tokenSecret) -}}
{{- $problems = append $problems (printf "%s.credentials: tokenId and tokenSecret, both of them" $at) -}}
{{- end -}}
{{- else if $password -}}
{{- if not (and $credentials.username $credentials.password) -}}
{{- $problems = append $problems (printf "%s.credentials: username and password, both of them" $at) -}}
{{- end -}}
{{- else if not $credentials.existingSecret -}}
{{- $problems = append $problems (printf "%s.credentials: an API token, as existingSecret (keys token-id and token-secret) or as tokenId and tokenSecret" $at) -}}
{{- end -}}
{{- if and ($cluster.caConfigMap).name ($cluster.spec).tls -}}
{{- $problems = append $problems (printf "%s: either caConfigMap or spec.tls, not both" $at) -}}
{{- end -}}
{{- end -}}
{{- range $name, $class := .Values.nodeClasses -}}
{{- $at := printf "nodeClasses.%s" $name -}}
{{- $class = $class | default dict -}}
{{- $template := ($class.spec).template | default dict -}}
{{- if not (or $template.name $template.tags) -}}
{{- $problems = append $problems (printf "%s.spec.template.name: the name of the VM template to clone, or its tags in spec.template.tags" $at) -}}
{{- end -}}
{{- if and ($class.joinScript).existingSecret ($class.joinScript).command -}}
{{- $problems = append $problems (printf "%s.joinScript: either existingSecret or command, not both" $at) -}}
{{- end -}}
{{- if and (include "kproxide.joinSecret" (list $ $class)) ($class.spec).join -}}
{{- $problems = append $problems (printf "%s: either joinScript or spec.join, not both" $at) -}}
{{- end -}}
{{- end -}}
{{- $program := .Files.Get "program.yaml" | fromYaml -}}
{{- $classes := keys .Values.nodeClasses | sortAlpha -}}
{{- range $name, $pool := .Values.nodePools -}}
{{- $spec := ($pool).spec | default dict -}}
{{- if and (not $spec.nodeClass) (ne (len $classes) 1) -}}
{{- $problems = append $problems (printf "nodePools.%s.spec.nodeClass: the name of a NodeClass%s" $name ($classes | empty | ternary "" (printf ": one of %s" (join ", " $classes)))) -}}
{{- end -}}
{{- if not (or $.Values.policies.configMaps $.Values.extraVolumeMounts) -}}
{{- range $question, $policy := $spec.policies -}}
{{- $builtin := get $program.policies $question | default list -}}
{{- range $list, $all := dict "" (list $policy) ".filters" $policy.filters ".scores" $policy.scores -}}
{{- range $one := $all -}}
{{- if not (has ($one.use | default (first $builtin)) $builtin) -}}
{{- $problems = append $problems (printf "nodePools.%s.spec.policies.%s%s.use: %q is not built in (these are: %s). A policy of your own comes by policies.configMaps or extraVolumeMounts" $name $question $list $one.use (join ", " $builtin)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) -}}
{{- $problems = append $problems "serviceAccount.name: needed with create: false; otherwise every pod of the namespace that names no ServiceAccount would get kproxide's rights" -}}
{{- end -}}
{{- $own := include "kproxide.ownFlags" . | fromYaml -}}
{{- range .Values.extraArgs -}}
{{- $flag := splitList "=" . | first -}}
{{- if hasKey $own $flag -}}
{{- $problems = append $problems (printf "extraArgs: %s is set by the chart: use %s" $flag (get $own $flag)) -}}
{{- else if not (has $flag $program.flags) -}}
{{- $problems = append $problems (printf "extraArgs: %s is no flag of kproxide run. It has: %s" $flag (join " " $program.flags)) -}}
{{- end -}}
{{- end -}}
{{- if $problems -}}
{{- fail (printf "\n\nkproxide cannot be installed with these values. Missing or contradictory:\n  - %s\n" (join "\n  - " $problems)) -}}
{{- end -}}
{{- end -}}
