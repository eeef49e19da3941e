package xds

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

//go:embed envoy.yaml.tmpl
var templateText string

var envoyTemplate = template.Must(template.New("envoy").Funcs(template.FuncMap{
	"quote": strconv.Quote, "quoteAddress": quoteAddress,
}).Parse(templateText))

// Kinds of cluster of model servers.
const (
	OverrideHost = "override-host" // the file lists the servers
	OriginalDst  = "original-dst"  // the pick alone says where
	Served       = "xds"           // xDS tells everything but where it is
)

// Lanes of the response.
const (
	Light = "light" // the picker is not shown the body, and learns its end from the access log
	Full  = "full"  // the picker is shown everything
)

// Place is a host, by address or name, and a port.
type Place struct {
	Host string
	Port int
}

// ParsePlace reads host:port.
func ParsePlace(s string) (Place, error) {
	host, number, err := net.SplitHostPort(s)
	if err != nil {
		return Place{}, fmt.Errorf("got %q, want host:port", s)
	}
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return Place{}, fmt.Errorf("got %q, want a port from 0 to 65535", s)
	}
	return Place{Host: host, Port: int(port)}, nil
}

func (p Place) String() string { return net.JoinHostPort(p.Host, strconv.Itoa(p.Port)) }

// quoteAddress writes an IPv4 address plainly, and quotes all that YAML might read as something else.
func quoteAddress(s string) string {
	if a, err := netip.ParseAddr(s); err == nil && a.Is4() {
		return s
	}
	return strconv.Quote(s)
}

// Version is the version of an Envoy, as far as configurations differ by it.
type Version struct{ Major, Minor int }

// The oldest Envoy that takes the files, and the first that tells when a response's body began, and which server
// served.
var (
	oldest       = Version{1, 36}
	timesBodies  = Version{1, 37}
	reportsServe = Version{1, 38}
)

// ParseVersion reads "1.38", "1.38.2" or "v1.38".
func ParseVersion(s string) (Version, error) {
	parts := strings.SplitN(strings.TrimPrefix(s, "v"), ".", 3)
	if len(parts) < 2 {
		return Version{}, fmt.Errorf("got %q, want a version like 1.40", s)
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	if err1 != nil || err2 != nil {
		return Version{}, fmt.Errorf("got %q, want a version like 1.40", s)
	}
	return Version{major, minor}, nil
}

func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

func (v Version) before(w Version) bool {
	return v.Major < w.Major || v.Major == w.Major && v.Minor < w.Minor
}

// Setup holds what a configuration of Envoy depends on. DefaultSetup returns that of Signalbox's default flags.
type Setup struct {
	Cluster, Lane string
	Version       Version
	Places
	Trust
	HealthChecked bool   // the picker answers health checks on its port
	MaxBodyBytes  int64  // of the picker; its receive limit is 1 MiB more
	File          string // name of the file, in its comment
	Standard      bool   // the flags are the default ones, in its comment

	untimed bool // the Envoy is one of those before timesBodies, whatever Version says
}

// Places say where everything listens.
type Places struct {
	Listen  Place   // of clients
	Admin   Place   // of Envoy's admin page
	Picker  Place   // ext_proc, as Envoy sees it
	Others  []Place // likewise, of other pickers of the pool
	Xds     Place   // the xDS port, as Envoy sees it
	Servers []Place // of override-host
}

// Trust says how the connections from Envoy to Signalbox are secured.
type Trust struct {
	Secure         bool   // TLS to the picker
	XdsSecure      bool   // TLS to the xDS port
	Authority      string // path at Envoy of the CA of Signalbox's certificates; "" = any certificate will do
	Identity       string // directory at Envoy with tls.crt and tls.key, for the xDS port; "" = none
	PickerIdentity string // likewise, for the ext_proc port
}

// DefaultSetup returns the setup of a shipped file.
func DefaultSetup(cluster, lane string) Setup {
	s := Setup{
		Cluster: cluster, Lane: lane, Version: Version{1, 40},
		Places: Places{
			Listen: Place{"127.0.0.1", 8080}, Admin: Place{"127.0.0.1", 19000},
			Picker: Place{"127.0.0.1", 9002}, Xds: Place{"127.0.0.1", 18000},
			Servers: []Place{{"127.0.0.1", 8001}, {"127.0.0.1", 8002}},
		},
		Trust: Trust{Secure: true}, HealthChecked: true, MaxBodyBytes: 32 << 20, Standard: true,
	}
	s.File = s.FileName()
	return s
}

// FileName returns the name of the shipped file.
func (s Setup) FileName() string {
	name := s.Cluster
	if s.Cluster == Served {
		name = "xds-bootstrap"
	}
	if s.Lane == Full {
		name += "-full"
	}
	return name + ".yaml"
}

// Light reports whether the picker is not shown the response's body.
func (s Setup) Light() bool { return s.Lane == Light }

// Listed reports whether Envoy knows a list of servers to fall back to.
func (s Setup) Listed() bool { return s.Cluster != OriginalDst }

// Named reports whether a server has a name that Envoy must resolve.
func (s Setup) Named() bool {
	return slices.ContainsFunc(s.Servers, func(p Place) bool {
		_, err := netip.ParseAddr(p.Host)
		return err != nil
	})
}

// ServedReported reports whether this Envoy can tell the picker by metadata which server served.
func (s Setup) ServedReported() bool { return !s.Version.before(reportsServe) }

// BodiesTimed reports whether this Envoy can tell in its access log when the body of a response began.
func (s Setup) BodiesTimed() bool { return s.Light() && !s.untimed && !s.Version.before(timesBodies) }

// Oldest returns the oldest Envoy that takes this file.
func (s Setup) Oldest() Version {
	switch {
	case s.Cluster == OverrideHost && s.ServedReported():
		return reportsServe
	case s.Cluster != Served && s.BodiesTimed():
		return timesBodies
	}
	return oldest
}

// Older returns the Envoy before that for which there is another file; "" = there is none.
func (s Setup) Older() string {
	if v := s.Oldest(); v != oldest {
		return Version{v.Major, v.Minor - 1}.String()
	}
	return ""
}

// ReceiveMiB returns the largest message that the picker takes, in MiB.
func (s Setup) ReceiveMiB() int64 { return s.MaxBodyBytes>>20 + 1 }

// BufferBytes returns Envoy's buffer, which may come in one message.
func (s Setup) BufferBytes() int64 { return min(4<<20, s.MaxBodyBytes+512<<10) }

// Pickers returns all pickers of the pool.
func (s Setup) Pickers() []Place { return append([]Place{s.Picker}, s.Others...) }

// Log is one picker's access log: one stream goes to one host, so each picker has a cluster of its own.
type Log struct {
	Cluster string
	Picker  Place
	TLS     TLS
}

// Logs returns those of all pickers.
func (s Setup) Logs() []Log {
	var all []Log
	for i, p := range s.Pickers() {
		name := "epp_log"
		if i > 0 {
			name += "_" + strconv.Itoa(i+1)
		}
		all = append(all, Log{name, p, s.tls(s.PickerIdentity, p)})
	}
	return all
}

// TLS is what a connection to Signalbox is checked by.
type TLS struct {
	Name                string // that is asked for
	Names               []Name // of which the certificate has one
	Authority, Identity string
}

// Name is one of a certificate.
type Name struct {
	Text    string
	Address bool // it is an IP address
}

// PickerTLS returns that of the ext_proc port.
func (s Setup) PickerTLS() TLS { return s.tls(s.PickerIdentity, s.Pickers()...) }

// XdsTLS returns that of the xDS port.
func (s Setup) XdsTLS() TLS { return s.tls(s.Identity, s.Xds) }

func (s Setup) tls(identity string, to ...Place) TLS {
	t := TLS{Name: "epp.local", Authority: s.Authority, Identity: identity}
	if s.Authority == "" {
		return t
	}
	t.Name = to[0].Host
	for _, p := range to {
		_, err := netip.ParseAddr(p.Host)
		if n := (Name{p.Host, err == nil}); !slices.Contains(t.Names, n) {
			t.Names = append(t.Names, n)
		}
	}
	return t
}

// check returns every problem at once.
func (s Setup) check() error {
	var all []error
	if s.Cluster != OverrideHost && s.Cluster != OriginalDst && s.Cluster != Served {
		all = append(all, fmt.Errorf("cluster: got %q, want %s, %s or %s", s.Cluster, OverrideHost, OriginalDst,
			Served))
	}
	if s.Lane != Light && s.Lane != Full {
		all = append(all, fmt.Errorf("lane: got %q, want %s or %s", s.Lane, Light, Full))
	}
	if s.Cluster == Served && len(s.Others) > 0 {
		all = append(all, errors.New("other pickers: Signalbox tells of itself alone in xDS"))
	}
	if s.Version.before(oldest) {
		all = append(all, fmt.Errorf("envoy version: got %v, want %v or newer", s.Version, oldest))
	}
	return errors.Join(all...)
}

// Bootstrap returns the file that Envoy starts with, as YAML.
func (s Setup) Bootstrap() ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := envoyTemplate.Execute(&b, s); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
