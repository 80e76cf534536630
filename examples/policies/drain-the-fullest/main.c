// Removes the Node first whose hypervisor has the least memory left, so that full servers get room.
//
// wit/policy.wit describes all facts; policy.h has them as C. What is returned must come from malloc, as policy_string_dup
// makes it. There is no need to free anything: each call has a fresh memory.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy.h"
#include "settings.h"

void exports_policy_describe(policy_info_t *info) {
  policy_string_dup(&info->name, "drain-the-fullest");
  policy_string_dup(&info->version, "1.0.0");
  policy_string_dup(&info->description, "the Node on the hypervisor with the least free memory goes first");
  policy_string_dup(&info->settings_schema, "{\"additionalProperties\": false}");
}

// There are no settings. The problem is shown to the operator.
static const char *read_settings(policy_string_t text) {
  const char *problem;
  setting_t setting;
  size_t at = 0;
  return next_setting(text, &at, &setting, &problem) ? "this policy has no settings" : problem;
}

static bool invalid(const char *problem, policy_policy_error_t *error) {
  error->tag = KPROXIDE_POLICY_TYPES_POLICY_ERROR_INVALID_SETTINGS;
  policy_string_dup(&error->val.invalid_settings, problem);
  return false;
}

bool exports_policy_check_settings(policy_string_t *text, policy_policy_error_t *error) {
  const char *problem = read_settings(*text);
  return problem ? invalid(problem, error) : true;
}

// The part of the memory given to machines that may still be given, 0 to 1.
static double memory_share(const kproxide_policy_types_candidate_t *hypervisor) {
  double available = hypervisor->available.memory_bytes;
  double used = hypervisor->used.memory_bytes, committed = hypervisor->committed.memory_bytes;
  double taken = (used > committed ? used : committed) + hypervisor->in_flight.memory_bytes;
  return available + taken == 0 ? 0 : available / (available + taken);
}

bool exports_kproxide_policy_scale_down_order(
    exports_kproxide_policy_scale_down_context_t *context, policy_string_t *pool,
    exports_kproxide_policy_scale_down_list_node_t *nodes,
    exports_kproxide_policy_scale_down_list_candidate_t *hypervisors, uint32_t max_removals,
    exports_kproxide_policy_scale_down_plan_t *plan, exports_kproxide_policy_scale_down_policy_error_t *error) {
  const char *problem = read_settings(context->settings);
  if (problem) return invalid(problem, error);

  memset(plan, 0, sizeof *plan);
  plan->removals.ptr = calloc(nodes->len + 1, sizeof *plan->removals.ptr);
  for (size_t i = 0; i < nodes->len; i++) {
    const exports_kproxide_policy_scale_down_node_t *node = &nodes->ptr[i];
    exports_kproxide_policy_scale_down_removal_t *removal = &plan->removals.ptr[plan->removals.len++];
    removal->index = i;
    // Where nobody knows the hypervisor, the Node goes last.
    if (!node->on.is_some || node->on.val >= hypervisors->len) {
      removal->score = 0;
      policy_string_dup(&removal->reason, "its hypervisor is not known");
      continue;
    }
    const kproxide_policy_types_candidate_t *hypervisor = &hypervisors->ptr[node->on.val];
    policy_string_t name = hypervisor->hypervisor.id.name;
    double share = memory_share(hypervisor);
    char reason[200];
    snprintf(reason, sizeof reason, "%.*s has %.0f %% of its memory left", (int)name.len, (const char *)name.ptr,
             share * 100);
    removal->score = 1 - share;
    policy_string_dup(&removal->reason, reason);
  }
  return true;
}
