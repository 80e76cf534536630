// Command packaging makes and checks what a release consists of, on machines that have
// no container engine. The first argument says what to do:
//
//	packaging image -binary kproxide -licenses THIRD-PARTY.txt -name ghcr.io/kproxide/kproxide:0.1.0 -version 0.1.0 -output kproxide.tar
//	packaging files FOLDER
//	packaging actionlint .github/workflows/ci.yml
//
// go.mod pins everything that it is made of, the certificates of public authorities too.
package main

import (
	"fmt"
	"os"

	"github.com/rhysd/actionlint"
)

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("say what to do: image, files or actionlint"))
	}
	arguments := os.Args[2:]
	switch os.Args[1] {
	case "image":
		if err := image(arguments); err != nil {
			fail(err)
		}
	case "files":
		if len(arguments) != 1 {
			fail(fmt.Errorf("files: give one folder"))
		}
		if err := writeFiles(arguments[0]); err != nil {
			fail(err)
		}
	case "actionlint":
		command := actionlint.Command{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
		os.Exit(command.Main(os.Args[1:]))
	default:
		fail(fmt.Errorf("%q is none of image, files and actionlint", os.Args[1]))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "packaging:", err)
	os.Exit(1)
}
