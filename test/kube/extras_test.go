package kube

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// extra is the path of objectives or rewrites.
func (s *space) extra(group, resource string) string {
	return "/apis/" + group + "/v1alpha2/namespaces/" + s.name + "/" + resource
}

func (s *space) objective(group, name, pool string, priority any) {
	s.t.Helper()
	s.must(http.MethodPost, s.extra(group, "inferenceobjectives"), "", object{
		"apiVersion": group + "/v1alpha2", "kind": "InferenceObjective", "metadata": object{"name": name},
		"spec": object{"poolRef": object{"name": pool}, "priority": priority},
	})
}

// configured waits until the configuration in force has these lines.
func (p *picker) configured(want ...string) {
	p.t.Helper()
	eventually(p.t, "the configuration has "+strings.Join(want, ", "), func() bool {
		page := p.page("/debug/config?format=text")
		for _, line := range want {
			if !strings.Contains(page, line+"\n") {
				return false
			}
		}
		return true
	})
}

// Objectives and rewrites are part of the configuration in force, also of definitions that come while the picker runs.
func TestObjectivesAndRewrites(t *testing.T) {
	const group, legacy = "llm-d.ai", "inference.networking.x-k8s.io"
	c := newCluster(t)
	s := newSpace(t, c)
	s.pod("a", "10.0.0.1", vllm, nil)
	s.pool(8000)
	p := startPicker(t, s.inPool()...)
	p.knows("a-rank-0 10.0.0.1:8000")
	p.ready(true)
	kinds := map[string]string{
		"inferenceobjectives": "InferenceObjective", "inferencemodelrewrites": "InferenceModelRewrite",
	}
	for _, g := range []string{legacy, group} {
		for plural, kind := range kinds {
			if err := c.defineOne(looseDefinition(g, kind, plural), "v1alpha2"); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.objective(legacy, "both", "llama", 1)
	s.objective(legacy, "old", "llama", nil)
	p.configured(`objective "both", priority 1`, `objective "old", priority 0`)
	s.objective(group, "both", "llama", 7)
	s.objective(group, "broken", "llama", "high")
	s.objective(group, "elsewhere", "qwen", 3)
	p.configured(`objective "both", priority 7`)
	p.says("InferenceObjective " + s.name + "/broken: spec.priority: got string, want a number")
	p.says("InferenceObjective old of the group " + legacy)
	page := p.page("/debug/config?format=text")
	if strings.Contains(page, "elsewhere") || strings.Contains(page, "broken") {
		t.Errorf("an objective of another pool, or one that makes no sense, is in force:\n%s", page)
	}
	var rules []object
	for i := range 10_000 {
		rules = append(rules, object{
			"matches": []object{{"model": object{"value": fmt.Sprintf("m%d", i)}}},
			"targets": []object{{"modelRewrite": fmt.Sprintf("t%d", i)}},
		})
	}
	s.must(http.MethodPost, s.extra(group, "inferencemodelrewrites"), "", object{
		"apiVersion": group + "/v1alpha2", "kind": "InferenceModelRewrite", "metadata": object{"name": "huge"},
		"spec": object{"poolRef": object{"name": "llama"}, "rules": rules},
	})
	p.configured(`rewrite   "huge"`, `  "m9999" to "t9999", weight 1`)
	s.remove(s.pools(poolGroup) + "/llama")
	p.ready(false)
	s.merge(s.extra(group, "inferenceobjectives")+"/both", object{"spec": object{"priority": 8}})
	s.pool(8000)
	machine, again := lateness.Begin(), time.Now()
	p.ready(true)
	p.knows("a-rank-0 10.0.0.1:8000")
	p.configured(`objective "both", priority 8`, `objective "old", priority 0`, `rewrite   "huge"`)
	machine.Within(t, "all is as before once the pool is there again", time.Since(again), 2*time.Second)
	s.remove(s.extra(group, "inferenceobjectives") + "/both")
	p.configured(`objective "both", priority 1`)
}

// Where the group serves v1 and not v1alpha2, objects of v1 count, which name pools by a list or select them by labels;
// also if the definition comes while the picker runs, and if it serves another version later.
func TestObjectivesAndRewritesOfV1(t *testing.T) {
	const group = "llm-d.ai"
	c := newCluster(t)
	s := newSpace(t, c)
	s.pod("a", "10.0.0.1", vllm, nil)
	s.pool(8000)
	pool := s.pools(poolGroup) + "/llama"
	s.merge(pool, object{"metadata": object{"labels": object{"tier": "gold"}}})
	p := startPicker(t, s.inPool()...)
	p.ready(true)
	kinds := map[string]string{
		"inferenceobjectives": "InferenceObjective", "inferencemodelrewrites": "InferenceModelRewrite",
	}
	for plural, kind := range kinds {
		if err := c.defineOne(looseDefinitionOf(group, kind, plural, looseVersion("v1", true)), "v1"); err != nil {
			t.Fatal(err)
		}
	}
	path := "/apis/" + group + "/v1/namespaces/" + s.name + "/"
	create := func(plural, name string, spec object) {
		s.must(http.MethodPost, path+plural, "", object{
			"apiVersion": group + "/v1", "kind": kinds[plural], "metadata": object{"name": name}, "spec": spec,
		})
	}
	create("inferenceobjectives", "listed", object{
		"priority": 4, "poolRefs": []object{{"name": "qwen"}, {"name": "llama"}},
	})
	create("inferenceobjectives", "elsewhere", object{"priority": 5, "poolRefs": []object{{"name": "qwen"}}})
	create("inferencemodelrewrites", "selected", object{
		"poolSelector": object{"matchLabels": object{"tier": "gold"}},
		"rules": []object{{
			"matches": []object{{"model": object{"value": "m"}}}, "targets": []object{{"modelRewrite": "n"}},
		}},
	})
	p.configured(`objective "listed", priority 4`, `rewrite   "selected"`)
	s.merge(pool, object{"metadata": object{"labels": object{"tier": "silver"}}})
	lacks := func(text string) {
		eventually(t, "the configuration is without "+text, func() bool {
			return !strings.Contains(p.page("/debug/config?format=text"), text)
		})
	}
	lacks("selected")
	lacks("elsewhere")

	// Another version takes the place of v1: what is known stays, and is followed on.
	s.merge(definitions+"/inferenceobjectives."+group, object{"spec": object{
		"versions": []object{looseVersion("v1", false), looseVersion("v1alpha2", true)},
	}})
	eventually(t, "v1alpha2 is served, and v1 is not", func() bool {
		_, is := s.do(http.MethodGet, s.extra(group, "inferenceobjectives"), "", nil)
		_, was := s.do(http.MethodGet, path+"inferenceobjectives", "", nil)
		return is == nil && was != nil
	})
	s.merge(s.extra(group, "inferenceobjectives")+"/listed", object{"spec": object{"priority": 6}})
	s.objective(group, "named", "llama", 7)
	p.configured(`objective "listed", priority 6`, `objective "named", priority 7`)
}
