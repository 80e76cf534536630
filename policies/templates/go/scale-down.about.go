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
		Description:    "the Node with the fewest pods to move goes first; young Nodes stay",
		SettingsSchema: `{"properties": {"minimumAgeSeconds": {"type": "integer", "minimum": 0, "description": "Nodes younger than this stay"}}, "additionalProperties": false}`,
	}
}

// Settings is what an operator may set.
type Settings struct {
	MinimumAgeSeconds uint64 `json:"minimumAgeSeconds"`
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
