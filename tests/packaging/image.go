package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Files and the image itself are as old as this, so that the same binary gives the same image.
var epoch = time.Unix(0, 0).UTC()

// What a person or a script wants to know of an image that was made.
type made struct {
	Name         string `json:"name"`
	Architecture string `json:"architecture"`
	// Of the image's manifest: what a registry calls it.
	Digest string `json:"digest"`
}

// Makes an archive that is an image in OCI's layout, and in that of `docker save`.
func image(arguments []string) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	binary := flags.String("binary", "", "the program, linked statically")
	reference := flags.String("name", "", "repository and tag")
	licenses := flags.String("licenses", "", "a file with those of what the program is made of")
	version := flags.String("version", "", "for the label")
	output := flags.String("output", "", "the archive")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	tag, err := name.NewTag(*reference, name.StrictValidation)
	if err != nil {
		return err
	}
	architecture, err := architectureOf(*binary)
	if err != nil {
		return fmt.Errorf("%s: %w", *binary, err)
	}
	image, err := build(*binary, *licenses, architecture, *version)
	if err != nil {
		return err
	}
	if err := archive(image, tag, *output); err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(made{tag.Name(), architecture, digest.String()})
}

// The largest pages of a kernel that shall run the program: those of a Raspberry Pi 5.
const pageSize = 16 << 10

// For which architecture the program is, in the words of OCI. One that an image
// without a C library, or a kernel of that architecture, could not start is refused.
func architectureOf(binary string) (string, error) {
	program, err := elf.Open(binary)
	if err != nil {
		return "", err
	}
	defer program.Close()
	var architecture string
	switch program.Machine {
	case elf.EM_X86_64:
		architecture = "amd64"
	case elf.EM_AARCH64:
		architecture = "arm64"
	default:
		return "", fmt.Errorf("made for %v: kproxide is built for x86-64 and arm64", program.Machine)
	}
	for _, segment := range program.Progs {
		if segment.Type == elf.PT_INTERP {
			return "", fmt.Errorf("linked dynamically, and the image has no C library: build it with -C target-feature=+crt-static")
		}
		if segment.Type == elf.PT_LOAD && architecture == "arm64" && segment.Align < pageSize {
			return "", fmt.Errorf("a segment is aligned to %d bytes: kernels with pages of %d do not load it", segment.Align, pageSize)
		}
	}
	return architecture, nil
}

func build(binary, licenses, architecture, version string) (v1.Image, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	texts, err := os.ReadFile(licenses)
	if err != nil {
		return nil, err
	}
	content, err := rootFilesystem(append(files(),
		file{"kproxide", 0o755, program},
		// Where the program looks for it: below its own folder.
		file{"licenses/THIRD-PARTY.txt", 0o644, texts},
	))
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer),
	)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "cargo image"},
	})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, withConfig(image, architecture, version))
}

// What the image is, besides its files. host/Containerfile says the same, and a test compares them.
func withConfig(image v1.Image, architecture, version string) *v1.ConfigFile {
	// An image that was just made in memory has one.
	config, err := image.ConfigFile()
	if err != nil {
		panic(err)
	}
	config = config.DeepCopy()
	config.Architecture = architecture
	config.OS = "linux"
	config.Created = v1.Time{Time: epoch}
	config.Config.User = fmt.Sprintf("%d:%d", userID, userID)
	config.Config.Entrypoint = []string{"/kproxide"}
	config.Config.Labels = map[string]string{
		"org.opencontainers.image.source": "https://github.com/kproxide/kproxide",
		// As the build of the program reads it; empty if nobody said of which commit the sources are.
		"org.opencontainers.image.revision":    os.Getenv("KPROXIDE_COMMIT"),
		"org.opencontainers.image.title":       "kproxide",
		"org.opencontainers.image.description": "Scales a Kubernetes cluster across Proxmox VE, by policies that you can replace",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     version,
	}
	return config
}

// The files and the folders that they are in, all root's, in the order of their paths.
func rootFilesystem(files []file) ([]byte, error) {
	headers := map[string]tar.Header{}
	contents := map[string][]byte{}
	for _, file := range files {
		headers[file.path] = tar.Header{
			Typeflag: tar.TypeReg, Name: file.path, Mode: file.mode, Size: int64(len(file.content)),
		}
		contents[file.path] = file.content
		for folder := path.Dir(file.path); folder != "."; folder = path.Dir(folder) {
			headers[folder] = tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755}
		}
	}
	return pack(headers, contents)
}

// Docker's list of the images in an archive.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// Writes the archive. Its name appears only with a complete file behind it.
func archive(image v1.Image, tag name.Tag, output string) error {
	folder, err := os.MkdirTemp("", "kproxide-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	index, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	err = index.AppendImage(image,
		layout.WithPlatform(v1.Platform{Architecture: config.Architecture, OS: config.OS}),
		layout.WithAnnotations(map[string]string{
			// By the first, containerd and Docker name it; by the second, skopeo finds it.
			"io.containerd.image.name":          tag.Name(),
			"org.opencontainers.image.ref.name": tag.TagStr(),
		}))
	if err != nil {
		return err
	}
	list, err := dockerManifest(image, tag)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "manifest.json"), list, 0o644); err != nil {
		return err
	}
	content, err := packFolder(folder)
	if err != nil {
		return err
	}
	unfinished := output + ".unfinished"
	if err := os.WriteFile(unfinished, content, 0o644); err != nil {
		return err
	}
	return os.Rename(unfinished, output)
}

func dockerManifest(image v1.Image, tag name.Tag) ([]byte, error) {
	blob := func(hash v1.Hash) string { return path.Join("blobs", hash.Algorithm, hash.Hex) }
	config, err := image.ConfigName()
	if err != nil {
		return nil, err
	}
	one := dockerImage{Config: blob(config), RepoTags: []string{tag.Name()}}
	layers, err := image.Layers()
	if err != nil {
		return nil, err
	}
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return nil, err
		}
		one.Layers = append(one.Layers, blob(digest))
	}
	return json.Marshal([]dockerImage{one})
}

// The files of a folder as a tar.
func packFolder(root string) ([]byte, error) {
	headers := map[string]tar.Header{}
	contents := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(root), ".", func(at string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case at == ".":
			return nil
		case entry.IsDir():
			headers[at] = tar.Header{Typeflag: tar.TypeDir, Name: at + "/", Mode: 0o755}
			return nil
		}
		contents[at], err = os.ReadFile(filepath.Join(root, at))
		headers[at] = tar.Header{Typeflag: tar.TypeReg, Name: at, Mode: 0o644, Size: int64(len(contents[at]))}
		return err
	})
	if err != nil {
		return nil, err
	}
	return pack(headers, contents)
}

func pack(headers map[string]tar.Header, contents map[string][]byte) ([]byte, error) {
	paths := []string{}
	for path := range headers {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	var packed bytes.Buffer
	writer := tar.NewWriter(&packed)
	for _, path := range paths {
		header := headers[path]
		header.ModTime = epoch
		header.Format = tar.FormatUSTAR
		if err := writer.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := writer.Write(contents[path]); err != nil {
			return nil, err
		}
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}
