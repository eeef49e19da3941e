//go:build nokubernetes

package app

import (
	"context"
	"errors"
	"io"

	"github.com/signalbox-epp/signalbox/adapters/telemetry"
)

// This file is built with the tag nokubernetes, in the place of what links Kubernetes.

// withoutKubernetes is the answer to a flag or a command that wants Kubernetes.
func withoutKubernetes(what string) error {
	return errors.New(what + ": this signalbox was built without Kubernetes, by the tag nokubernetes; name the " +
		"endpoints in a file, with --endpoints or file-discovery")
}

func (o *poolOptions) checkTarget() error { return withoutKubernetes("--endpoint-selector") }

// openPods is called for --pool-name alone: checkTarget has refused --endpoint-selector.
func (o *options) openPods(*telemetry.Log) (endpointSource, error) {
	return nil, withoutKubernetes("--pool-name")
}

func (o *options) preflight(context.Context, io.Writer, bool) error {
	return withoutKubernetes("preflight")
}
