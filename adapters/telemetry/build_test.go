package telemetry

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestBuildInfo(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(BuildInfo(Build{Version: "v1.2.3", Commit: "abc", Date: "2026-11-22T16:34:24Z"})...)
	want := `
# HELP llm_d_epp_info Always 1; the commit and the version that were built.
# TYPE llm_d_epp_info gauge
llm_d_epp_info{build_ref="v1.2.3",commit="abc"} 1
# HELP signalbox_build_info Always 1; the version, the commit and its date that were built.
# TYPE signalbox_build_info gauge
signalbox_build_info{commit="abc",date="2026-11-22T16:34:24Z",version="v1.2.3"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
