package config

import (
	"slices"
	"strings"
	"testing"
)

// Who may set headers is header without a word in the file. What agent-identity reads belongs to these headers.
func TestTrust(t *testing.T) {
	const agents = "plugins: [{type: agent-identity, parameters: {additionalSessionHeaders: [X-Agent]}}]\n"
	for name, c := range map[string]struct {
		data, by string
		proxies  []string
		more     []string // headers beside the fixed ones
		shown    string
	}{
		"nothing": {newHead, TrustHeader, nil, nil, "  trust: header\n"},
		"header":  {newHead + "requestHandler: {trust: header}", TrustHeader, nil, nil, "  trust: header\n"},
		"v1alpha1": {head + "requestHandler: {trust: envoy-metadata}", TrustMetadata, nil, nil,
			"  trust: envoy-metadata\n"},
		"metadata, agents": {newHead + agents + "requestHandler: {trust: envoy-metadata}", TrustMetadata, nil,
			[]string{"x-agent", "x-claude-code-session-id", "x-session-affinity", "session-id", "session_id"},
			"  trust: envoy-metadata\n"},
		"certificates": {newHead + "requestHandler: {trust: mtls, trustedProxies: [spiffe://c/gw, envoy]}",
			TrustCertificate, []string{"spiffe://c/gw", "envoy"}, nil,
			"  trust: mtls\n  trustedProxies:\n  - spiffe://c/gw\n  - envoy\n"},
	} {
		got, err := Load([]byte(c.data), three)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		is, headers := got.Trust, slices.Concat(trustHeaders, c.more)
		if is.By != c.by || !slices.Equal(is.Proxies, c.proxies) || !slices.Equal(is.Headers, headers) {
			t.Errorf("%s: got %+v, want by %s, of %q, headers %q", name, is, c.by, c.proxies, headers)
		}
		shown, err := Show([]byte(c.data), three)
		if err != nil || !strings.Contains(string(shown), c.shown) {
			t.Errorf("%s: shown as\n%s%v\nwant in it\n%s", name, shown, err, c.shown)
		}
	}
}

func TestTrustRefuses(t *testing.T) {
	for data, want := range map[string]string{
		"requestHandler:\n  trust: nobody": `line 4: requestHandler.trust: got "nobody", want header, envoy-metadata or ` +
			"mtls",
		"requestHandler: {trust: \"\"}": `line 3: requestHandler.trust: got "", want header, envoy-metadata or mtls`,
		"requestHandler:\n  trust: mtls": "line 3: requestHandler.trustedProxies: missing, want at least one name: " +
			"mtls trusts no proxy otherwise",
		"requestHandler: {trustedProxies: [a]}": "line 3: requestHandler.trustedProxies: needs trust: mtls, got header",
		"requestHandler:\n  trust: mtls\n  trustedProxies:\n  - a\n  - \"\"": "line 7: " +
			"requestHandler.trustedProxies[1]: empty, want a name in a certificate",
	} {
		_, err := Load([]byte(newHead+data), three)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", data, err, want)
		}
	}
	c, err := Load([]byte(newHead+"requestHandler:\n  trust: mtls\n  trustedProxies: [a]"), three)
	if err != nil {
		t.Fatal(err)
	}
	want := "line 4: requestHandler.trust: got mtls, which needs --client-ca-file"
	if got := c.Trust.NoCertificates().Error(); !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}
