// Package export_kproxide_policy_labels gives each Node a label with the name of its hypervisor.
package export_kproxide_policy_labels

import (
	about "my-policy/export_wit_world"

	. "my-policy/kproxide_policy_labels"
	. "my-policy/wit/types"
)

// Decorate has one answer for each hypervisor, in their order. wit/policy.wit describes all facts.
func Decorate(text string, machine Machine, hypervisors []Hypervisor) Result[[]Decoration, PolicyError] {
	settings, err := about.Read(text)
	if err != nil {
		return Err[[]Decoration](about.Invalid(err))
	}
	decorations := make([]Decoration, 0, len(hypervisors))
	for _, hypervisor := range hypervisors {
		label := Tuple2[string, string]{F0: settings.Key, F1: hypervisor.Id.Name}
		decorations = append(decorations, Decoration{Labels: []Tuple2[string, string]{label}})
	}
	return Ok[[]Decoration, PolicyError](decorations)
}
