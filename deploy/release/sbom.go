package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// bill writes the bill of materials of a binary beside it, from the build information in the binary.
func (r release) bill(p platform) error {
	info, err := buildinfo.ReadFile(r.path(p))
	if err != nil {
		return err
	}
	sum, err := sha256Of(r.path(p))
	if err != nil {
		return err
	}
	f, err := os.Create(r.path(p) + ".cdx.json")
	if err != nil {
		return err
	}
	defer f.Close()
	bom := billOf(info, r.origin)
	bom.Metadata.Component.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: sum}}
	if err := cyclonedx.NewBOMEncoder(f, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom,
		cyclonedx.SpecVersion1_6); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	return f.Close()
}

// billOf lists the modules of a binary, including Go's standard library. It does not list dependencies between modules,
// which the build information lacks.
func billOf(info *debug.BuildInfo, o origin) *cyclonedx.BOM {
	product := component(cyclonedx.ComponentTypeApplication, info.Main.Path, o.version)
	product.Properties = &[]cyclonedx.Property{{Name: "signalbox:commit", Value: o.commit}}
	all := []cyclonedx.Component{component(cyclonedx.ComponentTypeLibrary, "std",
		strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		used := m
		if m.Replace != nil {
			used = m.Replace
		}
		all = append(all, component(cyclonedx.ComponentTypeLibrary, used.Path, used.Version))
	}
	var needs []string
	for _, c := range all {
		needs = append(needs, c.BOMRef)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: o.date.Format(time.RFC3339), Component: &product}
	bom.Components = &all
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: product.BOMRef, Dependencies: &needs}}
	return bom
}

// component returns the entry of a Go module, which is named by its package URL.
func component(kind cyclonedx.ComponentType, path, version string) cyclonedx.Component {
	url := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cyclonedx.Component{BOMRef: url, Type: kind, Name: path, Version: version, PackageURL: url}
}
