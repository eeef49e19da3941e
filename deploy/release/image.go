package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// image writes the OCI image layout, with one image for each Linux platform. It packs the binaries that binary has
// built.
func (r release) image() error {
	text, err := os.ReadFile(filepath.Join(r.root, "deploy/Containerfile"))
	if err != nil {
		return err
	}
	recipe, err := readRecipe(string(text))
	if err != nil {
		return err
	}
	recipe.config.Labels["org.opencontainers.image.version"] = r.origin.version
	recipe.config.Labels["org.opencontainers.image.revision"] = r.origin.commit
	recipe.config.Labels["org.opencontainers.image.created"] = r.origin.date.Format(time.RFC3339)
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range r.platforms {
		if p.os != "linux" {
			continue
		}
		img, err := r.imageFor(p, recipe)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}}})
	}
	index = mutate.Annotations(index, recipe.config.Labels).(v1.ImageIndex)
	folder, err := layout.Write(filepath.Join(r.out, "image"), empty.Index)
	if err != nil {
		return err
	}
	return folder.AppendIndex(index,
		layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tagOf(r.origin.version)}))
}

// tagOf returns a version as an image tag. A tag may not contain the plus sign of build metadata,
// so it becomes a hyphen.
func tagOf(version string) string { return strings.ReplaceAll(version, "+", "-") }

func (r release) imageFor(p platform, recipe recipe) (v1.Image, error) {
	files, err := r.files(p, recipe)
	if err != nil {
		return nil, err
	}
	content, err := archive(files, r.origin.date)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)),
			nil
	},
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.Append(img, mutate.Addendum{Layer: layer,
		History: v1.History{Created: v1.Time{Time: r.origin.date}, CreatedBy: "deploy/release"}}); err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Config = p.os, p.arch, recipe.config
	config.Config.Labels = maps.Clone(recipe.config.Labels)
	config.Created = v1.Time{Time: r.origin.date}
	return mutate.ConfigFile(img, config)
}

// file is a file of an image.
type file struct {
	name    string // absolute path in the image, without the leading slash
	mode    fs.FileMode
	content []byte
	link    string // what it is a symbolic link to; "" = it is none
}

// files returns the files that the container file copies into the image, in its order.
func (r release) files(p platform, recipe recipe) ([]file, error) {
	var all []file
	for _, to := range recipe.files {
		if to == "/bin" {
			all = append(all, file{name: "bin/sh", link: "/signalbox"}, file{name: "bin/sleep", link: "/signalbox"})
			continue
		}
		f := file{name: strings.TrimPrefix(to, "/"), mode: 0o644}
		var err error
		switch to {
		case "/signalbox":
			f.mode = 0o755
			f.content, err = os.ReadFile(r.path(p))
		case "/LICENSE":
			f.content, err = os.ReadFile(filepath.Join(r.root, "LICENSE"))
		case "/etc/ssl/certs/ca-certificates.crt":
			f.content, err = authorities()
		default:
			err = fmt.Errorf("deploy/Containerfile copies a file to %s; say in image.go where it comes from", to)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// authorities returns Mozilla's root certificates in PEM. They come from a pinned module, because those of the machine
// differ between machines. Roots with a constraint are left out, because a PEM file cannot express it.
func authorities() ([]byte, error) {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
				return nil, err
			}
		}
	}
	if out.Len() == 0 {
		return nil, errors.New("the bundle of certificate authorities is empty")
	}
	return out.Bytes(), nil
}

// archive returns a layer as a tar file: the files and their parent folders, owned by root, with one modification time.
func archive(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	made := map[string]bool{".": true}
	for _, f := range files {
		for _, folder := range above(f.name) {
			if made[folder] {
				continue
			}
			made[folder] = true
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755,
				ModTime: at}); err != nil {
				return nil, err
			}
		}
		head := tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.mode), Size: int64(len(f.content)),
			ModTime: at}
		if f.link != "" {
			head.Typeflag, head.Linkname, head.Mode = tar.TypeSymlink, f.link, 0o777
		}
		if err := w.WriteHeader(&head); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil { // writes the end of the archive
		return nil, err
	}
	return out.Bytes(), nil
}

// above returns the parent folders of a path, the outermost first.
func above(name string) []string {
	dir := path.Dir(name)
	if dir == "." {
		return nil
	}
	return append(above(dir), dir)
}
