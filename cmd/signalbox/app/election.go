//go:build !nokubernetes

package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"github.com/signalbox-epp/signalbox/adapters/election"
	"github.com/signalbox-epp/signalbox/adapters/telemetry"
)

// openElection makes what claims the lease; nil = all pickers serve at once.
func (o *options) openElection(cluster *rest.Config, log *telemetry.Log) (*election.Election, error) {
	if !o.elects {
		return nil, nil
	}
	told := electionLog{log.Logger}
	return election.Open(election.Config{
		Cluster: cluster, Namespace: o.namespace(), Lease: o.lease(), Identity: processName(),
		Changed: told.change, Problem: told.problem,
	})
}

// lease returns the name of the lease, which is the reference's.
func (o *poolOptions) lease() string {
	return "epp-" + o.namespace() + "-" + cmp.Or(o.poolName, deployment(), selectorName(o.selector)) + ".llm-d.ai"
}

// ofDeployment matches the name of a pod that a Deployment made, and of no other one: its last two parts are of the
// letters that Kubernetes draws from, and have the lengths that it gives them.
var ofDeployment = regexp.MustCompile(`^(.+)-[` + drawn + `]{4,10}-[` + drawn + `]{5}$`)

// drawn are the letters of names that Kubernetes makes up: k8s.io/apimachinery/pkg/util/rand.
const drawn = "bcdfghjklmnpqrstvwxz2456789"

// deployment returns the name of the Deployment of this pod; "" = it has none.
func deployment() string {
	parts := ofDeployment.FindStringSubmatch(os.Getenv("POD_NAME"))
	if parts == nil {
		return ""
	}
	return parts[1]
}

// selectorName returns a name for the pods of a selector.
func selectorName(selector string) string {
	sum := sha256.Sum256([]byte(selector))
	return "selector-" + hex.EncodeToString(sum[:4])
}

// processName returns the name of this process among those that may lead.
func processName() string {
	if pod := os.Getenv("POD_NAME"); pod != "" {
		return pod
	}
	host, err := os.Hostname()
	if err != nil {
		host = ownName
	}
	return fmt.Sprintf("%s_%s", host, rand.Text()[:8])
}

// electionLog logs what becomes of the election.
type electionLog struct{ log *zap.Logger }

func (l electionLog) problem(err error) {
	if err != nil {
		l.log.Warn("leader election: a problem", zap.String("problem", err.Error()))
		return
	}
	l.log.Info("leader election: all is well again")
}

func (l electionLog) change(holder string, leads bool) {
	switch {
	case leads:
		l.log.Info("leader election: this process holds the lease", zap.String("identity", holder))
	case holder == "":
		l.log.Info("leader election: no process holds the lease")
	default:
		l.log.Info("leader election: another process holds the lease", zap.String("holder", holder))
	}
}

// elect begins to claim the lease, if a leader is elected.
func (t *tree) elect(ctx context.Context, e *election.Election) {
	if e == nil {
		return
	}
	t.election = e
	t.registry.MustRegister(e.Collectors()...)
	go e.Run(context.WithoutCancel(ctx))
}
