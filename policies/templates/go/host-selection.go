// Package export_kproxide_policy_host_selection places machines on hypervisors whose name begins with what the operator
// sets, the emptiest first.
package export_kproxide_policy_host_selection

import (
	"fmt"
	"strings"

	about "my-policy/export_wit_world"

	. "my-policy/kproxide_policy_host_selection"
	. "my-policy/wit/types"
)

// Rank says on which hypervisor this machine shall be made. wit/policy.wit describes all facts.
func Rank(context Context, request Request, candidates []Candidate) Result[Ranking, PolicyError] {
	settings, err := about.Read(context.Settings)
	if err != nil {
		return Err[Ranking](about.Invalid(err))
	}
	var ranking Ranking
	for index, candidate := range candidates {
		// It is listed for context, and must not be ranked.
		if candidate.Ineligible.IsSome() {
			continue
		}
		preferred := strings.HasPrefix(candidate.Hypervisor.Id.Name, settings.Prefix)
		score := memoryShare(candidate) / 2
		if preferred {
			score += 0.5
		}
		ranking.Placements = append(ranking.Placements, Placement{
			Index:  uint32(index),
			Score:  score,
			Reason: fmt.Sprintf("preferred: %t", preferred),
		})
	}
	return Ok[Ranking, PolicyError](ranking)
}

// The part of the memory given to machines that may still be given, 0 to 1.
func memoryShare(candidate Candidate) float64 {
	available := float64(candidate.Available.MemoryBytes)
	taken := float64(max(candidate.Used.MemoryBytes, candidate.Committed.MemoryBytes)) + float64(candidate.InFlight.MemoryBytes)
	if available+taken == 0 {
		return 0
	}
	return available / (available + taken)
}
