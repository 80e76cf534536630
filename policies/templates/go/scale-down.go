// Package export_kproxide_policy_scale_down removes the Node first from which the fewest pods would have to move. Young
// Nodes stay.
package export_kproxide_policy_scale_down

import (
	"fmt"

	about "my-policy/export_wit_world"

	. "my-policy/kproxide_policy_scale_down"
	. "my-policy/wit/types"
)

// Order says which of one pool's Nodes that can go shall go first. wit/policy.wit describes all facts.
func Order(context Context, pool string, nodes []Node, hypervisors []Candidate, maxRemovals uint32) Result[Plan, PolicyError] {
	settings, err := about.Read(context.Settings)
	if err != nil {
		return Err[Plan](about.Invalid(err))
	}
	var plan Plan
	for index, node := range nodes {
		if node.Created+settings.MinimumAgeSeconds > context.Now {
			continue
		}
		plan.Removals = append(plan.Removals, Removal{
			Index:  uint32(index),
			Score:  1 / (1 + float64(node.MovablePods)),
			Reason: fmt.Sprintf("pods to move: %d", node.MovablePods),
		})
	}
	return Ok[Plan, PolicyError](plan)
}
