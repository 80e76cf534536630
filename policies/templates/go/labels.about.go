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
		Description:    "a label with the name of the hypervisor",
		SettingsSchema: `{"properties": {"key": {"type": "string", "description": "the key of the label"}}, "additionalProperties": false}`,
	}
}

// Settings is what an operator may set.
type Settings struct {
	Key string `json:"key"`
}

// Read reads the operator's settings. The error is shown to the operator.
func Read(text string) (Settings, error) {
	settings := Settings{Key: "example.com/hypervisor"}
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
