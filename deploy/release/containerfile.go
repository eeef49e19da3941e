package main

import (
	"encoding/json"
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// recipe holds what the last stage of the container file says about the image. It has no commands, because the image
// has no shell.
type recipe struct {
	config v1.Config
	files  []string // destinations in the image, in order: the last word of each COPY
}

// readRecipe reads the last stage. An instruction that it does not know is an error, so that a build with the container
// file and a release give the same image.
func readRecipe(text string) (recipe, error) {
	var r recipe
	within := false // the last stage is FROM scratch
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", "")) {
		line = strings.TrimSpace(line)
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case word == "FROM":
			r, within = recipe{config: v1.Config{Labels: map[string]string{}, ExposedPorts: map[string]struct{}{}}},
				rest == "scratch"
		case within:
			if err := r.read(word, rest); err != nil {
				return r, fmt.Errorf("deploy/Containerfile: %s: %w", line, err)
			}
		}
	}
	if !within {
		return r, fmt.Errorf("deploy/Containerfile: its last stage is not FROM scratch")
	}
	return r, nil
}

func (r *recipe) read(word, rest string) error {
	switch word {
	case "COPY":
		words := strings.Fields(rest)
		r.files = append(r.files, words[len(words)-1])
	case "USER":
		r.config.User = rest
	case "EXPOSE":
		for _, port := range strings.Fields(rest) {
			r.config.ExposedPorts[port+"/tcp"] = struct{}{}
		}
	case "ENTRYPOINT":
		return json.Unmarshal([]byte(rest), &r.config.Entrypoint)
	case "CMD":
		return json.Unmarshal([]byte(rest), &r.config.Cmd)
	case "LABEL":
		name, quoted, _ := strings.Cut(rest, "=")
		var value string
		if err := json.Unmarshal([]byte(quoted), &value); err != nil {
			return err
		}
		r.config.Labels[name] = value
	default:
		return fmt.Errorf("%s is not known here; say in containerfile.go what it does", word)
	}
	return nil
}
