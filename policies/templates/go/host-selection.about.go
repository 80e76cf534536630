package export_wit_world

import (
	"bytes"
	"encoding/json"

	. "my-policy/kproxide_policy_types"
	. "my-policy/wit/types"
)

// Describe says what the policy is.
func Describe() Info {
	return Info{
		Name:           "my-policy",
		Version:        "1.0.0",
		Description:    "hypervisors whose name has a prefix, the emptiest first",
		SettingsSchema: `{"properties": {"prefix": {"type": "string", "description": "how the names of preferred hypervisors begin"}}, "additionalProperties": false}`,
	}
}

// Settings is what an operator may set.
type Settings struct {
	Prefix string `json:"prefix"`
}

// Read reads the operator's settings. The error is shown to the operator.
func Read(text string) (Settings, error) {
	settings := Settings{}
	decoder := json.NewDecoder(bytes.NewBufferString(text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&settings)
	return settings, err
}

// Invalid is the answer to settings that cannot be read.
func Invalid(err error) PolicyError {
	return MakePolicyErrorInvalidSettings(err.Error())
}

// CheckSettings is asked when a pool or the policy changes.
func CheckSettings(text string) Result[Unit, PolicyError] {
	if _, err := Read(text); err != nil {
		return Err[Unit](Invalid(err))
	}
	return Ok[Unit, PolicyError](Unit{})
}
