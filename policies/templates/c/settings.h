// The operator's settings: a JSON object whose values are texts without escapes, whole numbers, true or false.
#ifndef SETTINGS_H
#define SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "policy.h"

typedef struct {
  policy_string_t key;
  // A text without its quotes; otherwise as it stands.
  policy_string_t value;
  bool is_text;
} setting_t;

// Reads the next setting. `at` begins at 0. False at the end, and where `problem` is set, which it stays.
bool next_setting(policy_string_t text, size_t *at, setting_t *setting, const char **problem);

// Whether these bytes are these words.
bool is(policy_string_t bytes, const char *words);

// Whether a setting is a whole number of at most 18 digits, which it becomes.
bool as_number(setting_t setting, uint64_t *number);

#endif
