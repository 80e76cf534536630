package export_wit_world

import (
	"encoding/json"
	"errors"

	. "newest-kernel/kproxide_policy_types"
	. "newest-kernel/wit/types"
)

// Text is the kind of attributes that are texts.
const Text = ValueText

// Describe says what the policy is.
func Describe() Info {
	return Info{
		Name:           "newest-kernel",
		Version:        "1.0.0",
		Description:    "the newest kernel first, then the most free memory",
		SettingsSchema: `{"additionalProperties": false}`,
	}
}

// Check reads the operator's settings: there are none. The error is shown to the operator.
func Check(text string) error {
	var settings map[string]any
	if err := json.Unmarshal([]byte(text), &settings); err != nil {
		return err
	}
	if len(settings) > 0 {
		return errors.New("this policy has no settings")
	}
	return nil
}

// Invalid is the answer to settings that cannot be read.
func Invalid(err error) PolicyError {
	return MakePolicyErrorInvalidSettings(err.Error())
}

// CheckSettings is asked when a pool or the policy changes.
func CheckSettings(text string) Result[Unit, PolicyError] {
	if err := Check(text); err != nil {
		return Err[Unit](Invalid(err))
	}
	return Ok[Unit, PolicyError](Unit{})
}
