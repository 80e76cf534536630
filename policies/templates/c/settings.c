#include "settings.h"

#include <string.h>

bool is(policy_string_t bytes, const char *words) {
  return bytes.len == strlen(words) && memcmp(bytes.ptr, words, bytes.len) == 0;
}

bool as_number(setting_t setting, uint64_t *number) {
  if (setting.is_text || setting.value.len == 0 || setting.value.len > 18) return false;
  *number = 0;
  for (size_t i = 0; i < setting.value.len; i++) {
    if (setting.value.ptr[i] < '0' || setting.value.ptr[i] > '9') return false;
    *number = *number * 10 + (setting.value.ptr[i] - '0');
  }
  return true;
}

static void skip_space(policy_string_t text, size_t *at) {
  while (*at < text.len && strchr(" \t\r\n", text.ptr[*at]) && text.ptr[*at]) (*at)++;
}

static bool take(policy_string_t text, size_t *at, char c) {
  skip_space(text, at);
  if (*at >= text.len || text.ptr[*at] != c) return false;
  (*at)++;
  return true;
}

// What is between two quotes, of which the first was taken.
static bool take_text(policy_string_t text, size_t *at, policy_string_t *part) {
  part->ptr = text.ptr + *at;
  part->len = 0;
  for (; *at < text.len && text.ptr[*at] != '\\'; (*at)++, part->len++) {
    if (text.ptr[*at] == '"') {
      (*at)++;
      return true;
    }
  }
  return false;
}

// A number, true, false or null.
static bool take_word(policy_string_t text, size_t *at, policy_string_t *part) {
  part->ptr = text.ptr + *at;
  part->len = 0;
  for (; *at < text.len && !strchr(" \t\r\n,}{[]\"", text.ptr[*at]); (*at)++) part->len++;
  return part->len > 0;
}

bool next_setting(policy_string_t text, size_t *at, setting_t *setting, const char **problem) {
  bool is_first = *at == 0;
  *problem = "the settings must be an object of texts without escapes, whole numbers, true and false";
  if (is_first && !take(text, at, '{')) return false;
  if (take(text, at, '}')) {
    skip_space(text, at);
    if (*at == text.len) *problem = NULL;
    return false;
  }
  if (!is_first && !take(text, at, ',')) return false;
  if (!take(text, at, '"') || !take_text(text, at, &setting->key) || !take(text, at, ':')) return false;
  setting->is_text = take(text, at, '"');
  skip_space(text, at);
  bool is_whole =
      setting->is_text ? take_text(text, at, &setting->value) : take_word(text, at, &setting->value);
  if (is_whole) *problem = NULL;
  return is_whole;
}
