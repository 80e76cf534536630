// Says what text/template makes of templates: a line of JSON for each question, a line for each answer.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/template"
)

type question struct {
	Template  string
	Variables variables
}

// Variables are what go-template documents. A struct: any other name is an error.
type variables struct {
	TargetHost   string
	Cluster      string
	Zone         string
	Pool         string
	InstanceType string
	Cores        any
	MemoryMiB    int
	Attributes   map[string]any
}

// String is how a map of these would print, as they are one in go-template.
func (v variables) String() string {
	return fmt.Sprint(map[string]any{
		"TargetHost": v.TargetHost, "Cluster": v.Cluster, "Zone": v.Zone, "Pool": v.Pool,
		"InstanceType": v.InstanceType, "Cores": v.Cores, "MemoryMiB": v.MemoryMiB, "Attributes": v.Attributes,
	})
}

type answer struct {
	// Where it failed: parse or render. Empty if it did not.
	Failed string `json:"failed"`
	// What it makes, or why it fails.
	Text string `json:"text"`
}

func main() {
	input := json.NewDecoder(bufio.NewReader(os.Stdin))
	input.UseNumber()
	output := json.NewEncoder(os.Stdout)
	for input.More() {
		var asked question
		if err := input.Decode(&asked); err != nil {
			panic(err)
		}
		if err := output.Encode(judge(asked)); err != nil {
			panic(err)
		}
	}
}

func judge(asked question) answer {
	on := asked.Variables
	on.Cores = number(on.Cores)
	for key, value := range on.Attributes {
		on.Attributes[key] = number(value)
	}
	functions := template.FuncMap{"targetHost": func() string { return on.TargetHost }}
	parsed, err := template.New("").Funcs(functions).Parse(asked.Template)
	if err != nil {
		return answer{"parse", err.Error()}
	}
	var made strings.Builder
	if err := parsed.Execute(&made, on); err != nil {
		return answer{"render", err.Error()}
	}
	return answer{"", made.String()}
}

// Number keeps apart what is written with a point and what is not.
func number(value any) any {
	text, ok := value.(json.Number)
	if !ok {
		return value
	}
	if whole, err := text.Int64(); err == nil {
		return int(whole)
	}
	part, err := text.Float64()
	if err != nil {
		panic(err)
	}
	return part
}
