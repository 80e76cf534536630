// Gives each Node a label with the name of its hypervisor.
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
  policy_string_dup(&info->description, "a label with the name of the hypervisor");
  policy_string_dup(&info->settings_schema,
                    "{\"properties\": {\"key\": {\"type\": \"string\", \"description\": \"the key of the label\"}}, "
                    "\"additionalProperties\": false}");
}

// The operator's settings. The problem is shown to the operator.
static const char *read_settings(policy_string_t text, policy_string_t *key) {
  const char *problem;
  setting_t setting;
  policy_string_set(key, "example.com/hypervisor");
  for (size_t at = 0; next_setting(text, &at, &setting, &problem);) {
    if (!is(setting.key, "key")) return "there is one setting: key";
    if (!setting.is_text) return "key must be a text, such as example.com/hypervisor";
    *key = setting.value;
  }
  return problem;
}

static bool invalid(const char *problem, policy_policy_error_t *error) {
  error->tag = KPROXIDE_POLICY_TYPES_POLICY_ERROR_INVALID_SETTINGS;
  policy_string_dup(&error->val.invalid_settings, problem);
  return false;
}

bool exports_policy_check_settings(policy_string_t *text, policy_policy_error_t *error) {
  policy_string_t key;
  const char *problem = read_settings(*text, &key);
  return problem ? invalid(problem, error) : true;
}

// One answer for each hypervisor, in their order.
bool exports_kproxide_policy_labels_decorate(
    policy_string_t *settings, exports_kproxide_policy_labels_machine_t *machine,
    exports_kproxide_policy_labels_list_hypervisor_t *hypervisors,
    exports_kproxide_policy_labels_list_decoration_t *decorations,
    exports_kproxide_policy_labels_policy_error_t *error) {
  policy_string_t key;
  const char *problem = read_settings(*settings, &key);
  if (problem) return invalid(problem, error);

  decorations->len = hypervisors->len;
  decorations->ptr = calloc(hypervisors->len + 1, sizeof *decorations->ptr);
  for (size_t i = 0; i < hypervisors->len; i++) {
    policy_string_t name = hypervisors->ptr[i].id.name;
    exports_kproxide_policy_labels_decoration_t *decoration = &decorations->ptr[i];
    decoration->labels.len = 1;
    decoration->labels.ptr = calloc(1, sizeof *decoration->labels.ptr);
    policy_string_dup_n(&decoration->labels.ptr[0].f0, (const char *)key.ptr, key.len);
    policy_string_dup_n(&decoration->labels.ptr[0].f1, (const char *)name.ptr, name.len);
  }
  return true;
}
