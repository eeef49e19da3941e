package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// cacheForm is the form of the cache: the set that the pool took last, for a start without an API server.
type cacheForm struct {
	Subject   string       `json:"subject"` // which pods; a cache of others does not count
	Written   time.Time    `json:"written"`
	Endpoints []cachedSpec `json:"endpoints"`
}

type cachedSpec struct {
	Name    string            `json:"name"`
	Address string            `json:"address"`
	Labels  map[string]string `json:"labels,omitempty"`
}

// cacheEvery is how often the cache is written at most.
const cacheEvery = time.Second

// subject says which pods are followed.
func (c *Config) subject() string {
	if c.Pool.Name != "" {
		return fmt.Sprintf("%s %s/%s", inferencePools(c.Pool.Group), c.Namespace, c.Pool.Name)
	}
	ports := make([]string, len(c.Target.Ports))
	for i, p := range c.Target.Ports {
		ports[i] = strconv.Itoa(p)
	}
	return fmt.Sprintf("pods of %s with %s at %s", c.Namespace, c.Target.Selector, strings.Join(ports, ","))
}

// readCache returns the set of a cache and when it was written. Without a file there is none.
func readCache(path, subject, namespace string) (set []messages.EndpointSpec, written time.Time, _ error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, written, nil
	}
	if err != nil {
		return nil, written, err
	}
	var form cacheForm
	if err := json.Unmarshal(text, &form); err != nil {
		return nil, written, fmt.Errorf("%s: %w", path, err)
	}
	if form.Subject != subject {
		return nil, written, fmt.Errorf("%s is of %s, not of %s", path, form.Subject, subject)
	}
	for _, e := range form.Endpoints {
		if _, err := netip.ParseAddrPort(e.Address); err != nil || e.Name == "" {
			return nil, written, fmt.Errorf("%s: %q has no address that can be used", path, e.Name)
		}
		set = append(set, messages.EndpointSpec{
			Name: e.Name, Namespace: namespace, Address: messages.Address(e.Address), Labels: messages.MapOf(e.Labels),
		})
	}
	return set, form.Written, nil
}

// writeCache writes a cache, whole or not at all, also if the machine fails meanwhile.
func writeCache(path string, form *cacheForm) error {
	text, err := json.Marshal(form)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// cached is a set of the cache that the pool is to be told at the start.
type cached struct {
	set     []messages.EndpointSpec
	written time.Time
}

// startFromCache reads the set of the cache, which serves until the API server has answered.
func (d *Discovery) startFromCache() {
	if d.cfg.Cache == "" {
		return
	}
	set, written, err := readCache(d.cfg.Cache, d.cfg.subject(), d.cfg.Namespace)
	if err != nil {
		d.problems.begin(aboutCache, time.Now(), false, fmt.Errorf("the cache is not used: %w", err))
		return
	}
	if len(set) > 0 {
		d.out.start = &cached{set, written}
		d.tellCached()
	}
}

// tellCached tells the pool the set of the cache. If the pool refuses, it is still to be told.
func (d *Discovery) tellCached() {
	from := d.out.start
	if from == nil || !d.out.post(from.set, nil, from.written) {
		return
	}
	d.out.set, d.out.cached, d.out.start = from.set, true, nil
	now := time.Now()
	age := max(now.Sub(from.written), 0) // one that was written by a clock that is ahead has no age that is known
	d.problems.begin(aboutCache, now.Add(-age), true, fmt.Errorf("%d endpoints of the cache serve, written %v ago, "+
		"until the API server has answered", len(from.set), age.Round(time.Second)))
}

// aboutCache is what a problem of the cache is about. No call and no object has this name.
const aboutCache = "cache"

// renewCache has the cache written again, so that its age is the time since the set was last followed.
func (d *Discovery) renewCache() {
	if d.out.known && d.metrics.staleFor() == 0 {
		d.keepCache()
	}
}

// keepCache has the cache written: the set has changed, or is still that.
func (d *Discovery) keepCache() {
	if d.cfg.Cache == "" {
		return
	}
	form := &cacheForm{Subject: d.cfg.subject(), Written: time.Now()}
	for _, s := range d.out.set {
		labels := make(map[string]string, s.Labels.Len())
		for k, v := range s.Labels.All() {
			labels[k] = v
		}
		form.Endpoints = append(form.Endpoints, cachedSpec{Name: s.Name, Address: string(s.Address), Labels: labels})
	}
	select {
	case <-d.out.cache: // it is no longer the newest
	default:
	}
	d.out.cache <- form // there is room, for nothing else fills it
}

// writeCaches writes what keepCache gives it, at most once in cacheEvery, and the last one at the end.
func (d *Discovery) writeCaches(ctx context.Context) {
	said := false
	write := func(form *cacheForm) {
		err := writeCache(d.cfg.Cache, form)
		if err != nil && !said && d.cfg.Problem != nil {
			d.cfg.Problem(fmt.Errorf("the cache is not written: %w", err))
		}
		said = err != nil
	}
	for {
		select {
		case form := <-d.out.cache:
			write(form)
		case <-ctx.Done():
			select {
			case form := <-d.out.cache:
				write(form)
			default:
			}
			return
		}
		select {
		case <-time.After(cacheEvery):
		case <-ctx.Done():
		}
	}
}
