// Places machines on hypervisors whose name begins with what the operator sets, the emptiest first.
//
// wit/policy.wit describes all facts; policy.h has them as C. What is returned must come from malloc, as policy_string_dup
// makes it. There is no need to free anything: each call has a fresh memory.

#include <stdlib.h>
#include <string.h>

#include "policy.h"
#include "settings.h"

void exports_policy_describe(policy_info_t *info) {
  policy_string_dup(&info->name, "my-policy");
  policy_string_dup(&info->version, "1.0.0");
  policy_string_dup(&info->description, "hypervisors whose name has a prefix, the emptiest first");
  policy_string_dup(&info->settings_schema,
                    "{\"properties\": {\"prefix\": {\"type\": \"string\", \"description\": \"how the names of preferred "
                    "hypervisors begin\"}}, \"additionalProperties\": false}");
}

// The operator's settings. The problem is shown to the operator.
static const char *read_settings(policy_string_t text, policy_string_t *prefix) {
  const char *problem;
  setting_t setting;
  *prefix = (policy_string_t){0};
  for (size_t at = 0; next_setting(text, &at, &setting, &problem);) {
    if (!is(setting.key, "prefix")) return "there is one setting: prefix";
    if (!setting.is_text) return "prefix must be a text, such as rack";
    *prefix = setting.value;
  }
  return problem;
}

static bool invalid(const char *problem, policy_policy_error_t *error) {
  error->tag = KPROXIDE_POLICY_TYPES_POLICY_ERROR_INVALID_SETTINGS;
  policy_string_dup(&error->val.invalid_settings, problem);
  return false;
}

bool exports_policy_check_settings(policy_string_t *text, policy_policy_error_t *error) {
  policy_string_t prefix;
  const char *problem = read_settings(*text, &prefix);
  return problem ? invalid(problem, error) : true;
}

// The part of the memory given to machines that may still be given, 0 to 1.
static double memory_share(const kproxide_policy_types_candidate_t *candidate) {
  double available = candidate->available.memory_bytes;
  double used = candidate->used.memory_bytes, committed = candidate->committed.memory_bytes;
  double taken = (used > committed ? used : committed) + candidate->in_flight.memory_bytes;
  return available + taken == 0 ? 0 : available / (available + taken);
}

bool exports_kproxide_policy_host_selection_rank(
    exports_kproxide_policy_host_selection_context_t *context,
    exports_kproxide_policy_host_selection_request_t *request,
    exports_kproxide_policy_host_selection_list_candidate_t *candidates,
    exports_kproxide_policy_host_selection_ranking_t *ranking,
    exports_kproxide_policy_host_selection_policy_error_t *error) {
  policy_string_t prefix;
  const char *problem = read_settings(context->settings, &prefix);
  if (problem) return invalid(problem, error);

  memset(ranking, 0, sizeof *ranking);
  ranking->placements.ptr = calloc(candidates->len + 1, sizeof *ranking->placements.ptr);
  for (size_t i = 0; i < candidates->len; i++) {
    const kproxide_policy_types_candidate_t *candidate = &candidates->ptr[i];
    // It is listed for context, and must not be ranked.
    if (candidate->ineligible.is_some) continue;
    policy_string_t name = candidate->hypervisor.id.name;
    bool preferred = name.len >= prefix.len && memcmp(name.ptr, prefix.ptr, prefix.len) == 0;

    exports_kproxide_policy_host_selection_placement_t *placement =
        &ranking->placements.ptr[ranking->placements.len++];
    placement->index = i;
    placement->score = (preferred ? 0.5 : 0) + memory_share(candidate) / 2;
    policy_string_dup(&placement->reason, preferred ? "preferred: true" : "preferred: false");
  }
  return true;
}
