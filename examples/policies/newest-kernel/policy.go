// Package export_kproxide_policy_host_selection places machines on the hypervisors with the newest kernel; of equal ones
// on the emptiest.
package export_kproxide_policy_host_selection

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	about "newest-kernel/export_wit_world"

	. "newest-kernel/kproxide_policy_host_selection"
	. "newest-kernel/wit/types"
)

// Rank says on which hypervisor this machine shall be made. wit/policy.wit describes all facts.
func Rank(context Context, request Request, candidates []Candidate) Result[Ranking, PolicyError] {
	if err := about.Check(context.Settings); err != nil {
		return Err[Ranking](about.Invalid(err))
	}
	// The versions that there are, the oldest first.
	var versions []string
	for _, candidate := range candidates {
		versions = append(versions, kernel(candidate))
	}
	slices.SortFunc(versions, compare)
	versions = slices.CompactFunc(versions, func(a, b string) bool { return compare(a, b) == 0 })

	var ranking Ranking
	for index, candidate := range candidates {
		// It is listed for context, and must not be ranked.
		if candidate.Ineligible.IsSome() {
			continue
		}
		version := kernel(candidate)
		age, _ := slices.BinarySearchFunc(versions, version, compare)
		// A newer kernel weighs more than any memory.
		score := (float64(age) + memoryShare(candidate)*0.9) / float64(len(versions))
		reason := "its kernel is " + version
		if version == "" {
			reason = "its kernel is not known"
		}
		ranking.Placements = append(ranking.Placements, Placement{
			Index:  uint32(index),
			Score:  score,
			Reason: fmt.Sprintf("%s; %.0f %% of the memory is free", reason, memoryShare(candidate)*100),
		})
	}
	return Ok[Ranking, PolicyError](ranking)
}

// The attribute pve.kernel, such as 6.8.12-4-pve; empty where it is not known.
func kernel(candidate Candidate) string {
	for _, attribute := range candidate.Hypervisor.Attributes {
		if attribute.Key == "pve.kernel" && attribute.Value.Tag() == about.Text {
			return attribute.Value.Text()
		}
	}
	return ""
}

// Compares versions number by number: 6.8.12-4-pve is newer than 6.8.4-10-pve.
func compare(a, b string) int {
	return slices.Compare(numbers(a), numbers(b))
}

func numbers(version string) []int {
	var found []int
	for _, part := range strings.FieldsFunc(version, func(c rune) bool { return !unicode.IsDigit(c) }) {
		number, _ := strconv.Atoi(part)
		found = append(found, number)
	}
	return found
}

// The part of the memory given to machines that may still be given, 0 to 1.
func memoryShare(candidate Candidate) float64 {
	available := float64(candidate.Available.MemoryBytes)
	taken := float64(max(candidate.Used.MemoryBytes, candidate.Committed.MemoryBytes)) + float64(candidate.InFlight.MemoryBytes)
	return available / cmp.Or(available+taken, 1)
}
