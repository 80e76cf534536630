package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// The user of the image, in /etc/passwd and as what it runs.
const userID = 65532

// A file of the image, by its path from the root.
type file struct {
	path    string
	mode    int64
	content []byte
}

// What the image holds besides kproxide and its licences. The folders that these are in come first.
func files() []file {
	return []file{
		{"etc/passwd", 0o644, fmt.Appendf(nil, "kproxide:x:%d:%d:kproxide:/:/sbin/nologin\n", userID, userID)},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, authorities()},
	}
}

// The public authorities that Mozilla trusts, as PEM. PEM has no words for a
// constraint, such as "only what was issued before 2025": an authority with one is
// left out, since it will be distrusted soon.
func authorities() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			// A buffer takes everything.
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return text.Bytes()
}

// Writes the files below a folder, for a container engine to copy from.
func writeFiles(folder string) error {
	for _, file := range files() {
		path := filepath.Join(folder, file.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, file.content, os.FileMode(file.mode)); err != nil {
			return err
		}
	}
	return nil
}
