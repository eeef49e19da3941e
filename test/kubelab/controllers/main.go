// Controllers runs those of Deployments and ReplicaSets against an API server, for tests of how an update goes:
//
//	controllers KUBECONFIG
//
// It prints "running" once it does, and ends when its standard input ends.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/replicaset"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: controllers KUBECONFIG")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "controllers:", err)
		os.Exit(1)
	}
}

func run(kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 100, 200
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watched := informers.NewSharedInformerFactory(client, 0)
	apps, pods := watched.Apps().V1(), watched.Core().V1().Pods()
	deployments, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), pods, client)
	if err != nil {
		return err
	}
	replicaSets := replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), pods, client, replicaset.BurstReplicas)
	watched.Start(ctx.Done())
	go deployments.Run(ctx, 1)
	go replicaSets.Run(ctx, 1)
	fmt.Println("running")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}
