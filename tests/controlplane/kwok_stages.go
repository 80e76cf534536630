package main

import (
	"fmt"
	"os"

	nodefast "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	nodeheartbeat "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	podfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	"sigs.k8s.io/yaml"
)

// runKwokStages prints the life of fake nodes and of the pods on them, which kwok
// does not start without: its default stages, less the pods on the nodes named as
// arguments. A test plays the kubelet itself on those.
func runKwokStages() int {
	nodeStages := []string{nodefast.DefaultNodeInit, nodeheartbeat.DefaultNodeHeartbeatWithLease}
	podStages := []string{podfast.DefaultPodReady, podfast.DefaultPodComplete, podfast.DefaultPodDelete}

	for _, stage := range nodeStages {
		fmt.Printf("---\n%s\n", stage)
	}
	for _, stage := range podStages {
		narrowed, err := exceptOnNodes(stage, os.Args[1:])
		if err != nil {
			fmt.Fprintln(os.Stderr, "Error:", err)
			return 1
		}
		fmt.Printf("---\n%s\n", narrowed)
	}
	return 0
}

func exceptOnNodes(stage string, nodes []string) ([]byte, error) {
	if len(nodes) == 0 {
		return []byte(stage), nil
	}
	var document struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       map[string]any `json:"spec"`
	}
	if err := yaml.UnmarshalStrict([]byte(stage), &document); err != nil {
		return nil, err
	}
	selector, _ := document.Spec["selector"].(map[string]any)
	if selector == nil {
		selector = map[string]any{}
	}
	expressions, _ := selector["matchExpressions"].([]any)
	selector["matchExpressions"] = append(expressions, map[string]any{
		"key": ".spec.nodeName", "operator": "NotIn", "values": nodes,
	})
	document.Spec["selector"] = selector
	return yaml.Marshal(document)
}
