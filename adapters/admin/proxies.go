package admin

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ProxyView is what is shown of a proxy that is connected.
type ProxyView struct {
	From         string  `json:"from"`        // its address, without a port
	Node         *string `json:"node"`        // as its access log or xDS names it; null = unknown
	Version      *string `json:"version"`     // of Envoy, likewise
	Lane         *string `json:"lane"`        // "light", "full" or "light+full"; null = it has asked for nothing
	Connections  int     `json:"connections"` // that ask for picks
	Light        uint64  `json:"light_requests"`
	Full         uint64  `json:"full_requests"`
	AccessLog    string  `json:"access_log"` // "seen", "awaited", "missing", "ended", "not needed" or "none"
	XDS          bool    `json:"xds"`        // it is configured by this process
	SinceSeconds float64 `json:"since_seconds"`
}

func (h *handler) proxies(w http.ResponseWriter, r *http.Request) {
	if h.Proxies == nil {
		fail(w, http.StatusNotFound, "not-shown", "this process does not show its proxies")
		return
	}
	list := append([]ProxyView{}, h.Proxies()...)
	if wantsJSON(r) {
		writeJSON(w, http.StatusOK, struct {
			Proxies []ProxyView `json:"proxies"`
		}{list})
		return
	}
	plain(w, http.StatusOK, proxiesText(list))
}

func proxiesText(list []ProxyView) string {
	if len(list) == 0 {
		return "no proxies\n"
	}
	known := func(s *string) string {
		if s == nil {
			return "unknown"
		}
		return clean(*s)
	}
	rows := [][]string{{"from", "node", "version", "lane", "access log", "xds", "connections", "light", "full",
		"since"}}
	for i := range list {
		p := &list[i]
		xds := "no"
		if p.XDS {
			xds = "yes"
		}
		rows = append(rows, []string{
			clip(clean(p.From), addressColumns), clip(known(p.Node), 24), known(p.Version), known(p.Lane), p.AccessLog,
			xds, strconv.Itoa(p.Connections),
			strconv.FormatUint(p.Light, 10), strconv.FormatUint(p.Full, 10),
			short(time.Duration(p.SinceSeconds * float64(time.Second))),
		})
	}
	var b strings.Builder
	table(&b, "", "llllllrrrr", rows)
	return b.String()
}
