// Removes the Node first from which the fewest pods would have to move. Young Nodes stay.
//
// wit/policy.wit describes all facts; policy.h has them as C. What is returned must come from malloc, as policy_string_dup
// makes it. There is no need to free anything: each call has a fresh memory.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy.h"
#include "settings.h"

void exports_policy_describe(policy_info_t *info) {
  policy_string_dup(&info->name, "my-policy");
  policy_string_dup(&info->version, "1.0.0");
  policy_string_dup(&info->description, "the Node with the fewest pods to move goes first; young Nodes stay");
  policy_string_dup(&info->settings_schema,
                    "{\"properties\": {\"minimumAgeSeconds\": {\"type\": \"integer\", \"minimum\": 0, \"description\": "
                    "\"Nodes younger than this stay\"}}, \"additionalProperties\": false}");
}

// The operator's settings. The problem is shown to the operator.
static const char *read_settings(policy_string_t text, uint64_t *minimum_age) {
  const char *problem;
  setting_t setting;
  *minimum_age = 0;
  for (size_t at = 0; next_setting(text, &at, &setting, &problem);) {
    if (!is(setting.key, "minimumAgeSeconds")) return "there is one setting: minimumAgeSeconds";
    if (!as_number(setting, minimum_age)) return "minimumAgeSeconds must be a whole number, such as 600";
  }
  return problem;
}

static bool invalid(const char *problem, policy_policy_error_t *error) {
  error->tag = KPROXIDE_POLICY_TYPES_POLICY_ERROR_INVALID_SETTINGS;
  policy_string_dup(&error->val.invalid_settings, problem);
  return false;
}

bool exports_policy_check_settings(policy_string_t *text, policy_policy_error_t *error) {
  uint64_t minimum_age;
  const char *problem = read_settings(*text, &minimum_age);
  return problem ? invalid(problem, error) : true;
}

bool exports_kproxide_policy_scale_down_order(
    exports_kproxide_policy_scale_down_context_t *context, policy_string_t *pool,
    exports_kproxide_policy_scale_down_list_node_t *nodes,
    exports_kproxide_policy_scale_down_list_candidate_t *hypervisors, uint32_t max_removals,
    exports_kproxide_policy_scale_down_plan_t *plan, exports_kproxide_policy_scale_down_policy_error_t *error) {
  uint64_t minimum_age;
  const char *problem = read_settings(context->settings, &minimum_age);
  if (problem) return invalid(problem, error);

  memset(plan, 0, sizeof *plan);
  plan->removals.ptr = calloc(nodes->len + 1, sizeof *plan->removals.ptr);
  for (size_t i = 0; i < nodes->len; i++) {
    const exports_kproxide_policy_scale_down_node_t *node = &nodes->ptr[i];
    if (node->created + minimum_age > context->now) continue;

    exports_kproxide_policy_scale_down_removal_t *removal = &plan->removals.ptr[plan->removals.len++];
    char reason[64];
    snprintf(reason, sizeof reason, "pods to move: %u", (unsigned)node->movable_pods);
    removal->index = i;
    removal->score = 1 / (1 + (double)node->movable_pods);
    policy_string_dup(&removal->reason, reason);
  }
  return true;
}
